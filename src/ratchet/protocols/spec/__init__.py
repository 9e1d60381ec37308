"""What a protocol is to do: its spec, read, checked, kept and audited."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.protocols.spec.audit import is_step_file, spec_from_files
    from ratchet.protocols.spec.step_spec import (
        Exists,
        ProtocolSpec,
        Qa,
        QaPolicy,
        StepOutputs,
        StepSpec,
        dependencies,
        dependency_problems,
        files_below,
        files_of,
        find_path,
        infer_step_type,
        prompt_version,
        spec_hash,
        step_rows,
        write_protocol_spec,
    )
    from ratchet.protocols.spec.validation import (
        SpecInvalid,
        check_paths,
        check_spec,
        read_protocol_spec,
        record_spec,
        spec_problems,
        spec_schema,
    )
else:
    __getattr__ = on_demand(__name__)
