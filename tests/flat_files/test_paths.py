"""Requests that name a file of the installation."""

import shutil

import pytest


def test_client_id_cannot_traverse_paths(program, adas_browser, flat_folders):
    data, name = flat_folders[0], f"{program.id}.json"
    shutil.copy(data / "clients" / name, data / "users" / name)
    code = adas_browser.allow(program)
    answer = program.exchange(code, client_id=f"../users/{program.id}")
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "address",
    [
        *(
            "/pfp/small/../secret.webp",
            "/pfp/small/%2e%2e/secret.webp",
            "/pfp/small/..%2fsecret.webp",
        ),
        *("/pfp/small/%2e%2e%2fsecret.webp", "/pfp/%2e%2e/secret.webp", "/pfp/../secret.webp"),
        *("/pfp/small/..%5csecret.webp", "/pfp/small//secret.webp", "/pfp/small/%2fetc%2fpasswd"),
        "/pfp/small/..%252fsecret.webp",
        "/pfp/small/../../instance/secret_key",
        "/pfp/small/%2e%2e/%2e%2e/instance/secret_key",
    ],
)
def test_path_traversal_is_404(anyone, flat_folders, address):
    pictures = flat_folders[1]
    for folder in (pictures, pictures.parent):
        (folder / "secret.webp").write_bytes(b"secret")
    answer = anyone.get(address)
    assert answer.status_code == 404
    assert answer.data != b"secret"


@pytest.mark.parametrize(
    "name", [".1.webp", ".1.webp.0a1b2c3d", "1.webp.0a1b2c3d", ".7-1700.webp.0a1b2c3d.old"]
)
def test_temporary_files_are_never_served(anyone, flat_folders, name):
    (flat_folders[1] / "small" / name).write_bytes(b"half a picture")
    assert anyone.get(f"/pfp/small/{name}").status_code == 404
