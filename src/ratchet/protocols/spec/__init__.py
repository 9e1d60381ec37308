"""What a protocol is to do: its spec, read, checked, kept and audited."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.protocols.spec._dependencies import dependencies, dependency_problems
    from ratchet.protocols.spec.errors import SpecInvalid
    from ratchet.protocols.spec.files import is_step_file, spec_from_files
    from ratchet.protocols.spec.hashing import prompt_version, spec_hash
    from ratchet.protocols.spec.paths import (
        Exists,
        files_below,
        files_of,
        files_of_commit,
        find_path,
        unsafe_path,
    )
    from ratchet.protocols.spec.reading import read_protocol_spec
    from ratchet.protocols.spec.recording import record_spec, root_of, spec_problems
    from ratchet.protocols.spec.rows import step_rows
    from ratchet.protocols.spec.schema import SCHEMA
    from ratchet.protocols.spec.step_spec import (
        Outputs,
        ProtocolSpec,
        Qa,
        QaPolicy,
        StepSpec,
        infer_step_type,
    )
    from ratchet.protocols.spec.validation import check_paths, check_spec
    from ratchet.protocols.spec.writing import write_protocol_spec, write_step_spec
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "SCHEMA",
    "Exists",
    "Outputs",
    "ProtocolSpec",
    "Qa",
    "QaPolicy",
    "SpecInvalid",
    "StepSpec",
    "check_paths",
    "check_spec",
    "dependencies",
    "dependency_problems",
    "files_below",
    "files_of",
    "files_of_commit",
    "find_path",
    "infer_step_type",
    "is_step_file",
    "prompt_version",
    "read_protocol_spec",
    "record_spec",
    "root_of",
    "spec_from_files",
    "spec_hash",
    "spec_problems",
    "step_rows",
    "unsafe_path",
    "write_protocol_spec",
    "write_step_spec",
]
