"""CodeMachine workspaces as protocols: read without running anything, and imported whole or not at all."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.protocols.codemachine.files import WorkspaceInvalid
    from ratchet.protocols.codemachine.importer import enqueue_import, import_in_job, import_workspace
    from ratchet.protocols.codemachine.spec import prompt_files, to_protocol_spec
    from ratchet.protocols.codemachine.workspace import CodeMachine, read_workspace
else:
    __getattr__ = on_demand(__name__)
