"""`described.json` says what the code does, so that names and mistakes are known without JAX."""

from holdfast.config import build, catalogue, describe, described, schema, sections, signatures
from holdfast.config.file import read
from holdfast.errors import HoldfastError
from tests.config.test_wrong_files import GOOD, WRONG


def said(check, file):
    try:
        check(file)
    except HoldfastError as error:
        return str(error)
    return None


def test_it_is_what_the_code_says():
    package = describe.Path(describe.__file__).with_name(described.FILE)
    fresh = package.read_text("utf-8") == describe.text()
    assert fresh, "signatures or docstrings have changed: python -m holdfast.config.describe"


def test_types_are_those_of_the_signatures():
    for kind in catalogue.KINDS.keys() - {"metric"}:
        for name, function in catalogue.KINDS[kind].items():
            written = described.unmarked(described.find(kind, name).fields)
            real = signatures.fields(function, schema.ALSO.get(kind))
            read_ = {n: (eval(k, vars(schema)), must) for n, (k, must) in written.items()}
            assert read_ == real


def test_a_good_file_is_not_refused(tmp_path):
    (tmp_path / "good.toml").write_text(GOOD)
    sections.refuse_mistakes(read(tmp_path / "good.toml"))


def test_mistakes_are_refused_in_the_same_words_as_with_the_code(tmp_path):
    refused = 0
    for (old, new), *_ in WRONG.values():
        path = tmp_path / "wrong.toml"
        path.write_text(GOOD.replace(old, new, 1))
        try:
            file = read(path)
        except HoldfastError:
            continue
        early = said(sections.refuse_mistakes, file)
        if early is not None:
            refused += 1
            assert early == said(build.study, file)
    assert refused > len(WRONG) / 4
