"""Requests that name a file of the installation."""

import shutil


def test_client_id_cannot_traverse_paths(program, adas_browser, data):
    name = f"{program.id}.json"
    shutil.copy(data / "clients" / name, data / "users" / name)
    code = adas_browser.allow(program)
    answer = program.exchange(code, client_id=f"../users/{program.id}")
    assert answer.status_code == 401


def test_path_traversal_is_404(anyone, pictures, subtests):
    for folder in (pictures, pictures.parent):
        (folder / "secret.webp").write_bytes(b"secret")
    for path in (
        *("small/../secret.webp", "small/%2e%2e/secret.webp", "small/..%2fsecret.webp"),
        *("small/%2e%2e%2fsecret.webp", "%2e%2e/secret.webp", "../secret.webp"),
        *("small/..%5csecret.webp", "small//secret.webp", "small/%2fetc%2fpasswd"),
        *("small/..%252fsecret.webp", "small/../../instance/secret_key"),
        "small/%2e%2e/%2e%2e/instance/secret_key",
    ):
        with subtests.test(path):
            answer = anyone.get(f"/pfp/{path}")
            assert answer.status_code == 404
            assert answer.data != b"secret"


def test_temporary_files_are_never_served(anyone, pictures):
    for name in (".1.webp", ".1.webp.0a1b2c3d", "1.webp.0a1b2c3d", ".7-1700.webp.0a1b2c3d.old"):
        (pictures / "small" / name).write_bytes(b"half a picture")
        assert anyone.get(f"/pfp/small/{name}").status_code == 404
