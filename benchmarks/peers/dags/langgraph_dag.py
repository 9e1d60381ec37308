"""`python langgraph_dag.py WIDTH DEPTH`: a state graph with the SQLite checkpointer, which keeps its file here.

The state has one value for each column, which is as little as the graph can do with.
"""

import json
import sys
import time
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


def built(width, depth, saver):
    names = [f"column_{column}" for column in range(width)]
    graph = StateGraph(TypedDict("State", dict.fromkeys(names, int)))
    for layer in range(depth):
        for column, name in enumerate(names):
            node = f"{layer}_{column}"
            graph.add_node(node, lambda state, name=name: {name: state[name]})
            if layer == 0:
                graph.add_edge(START, node)
            else:
                above = layer - 1
                graph.add_edge([f"{above}_{column}", f"{above}_{(column + 1) % width}"], node)
            if layer == depth - 1:
                graph.add_edge(node, END)
    return graph.compile(checkpointer=saver)


def run(graph, width, depth):
    given = {f"column_{column}": column for column in range(width)}
    configuration = {"configurable": {"thread_id": f"{width}x{depth}"}, "recursion_limit": depth + 10}
    found = graph.invoke(given, configuration)
    return [found[name] for name in given]


def main():
    width, depth = map(int, sys.argv[1:])
    with SqliteSaver.from_conn_string("checkpoints.db") as saver:
        run(built(2, 2, saver), 2, 2)
        # A graph is built once and run often.
        graph = built(width, depth, saver)
        began = time.monotonic()
        values = run(graph, width, depth)
        print(json.dumps({"began": began, "ended": time.monotonic(), "values": values}), flush=True)


if __name__ == "__main__":
    main()
