"""The plan "Config OP" (oidcc-config-certification-test-plan): its module."""

from authlib.oidc.discovery import OpenIDProviderMetadata
from conftest import on_each_backend

from conformance.relying_party import DISCOVERY, read_key
from identity.oauth.clients import DEVICE_GRANT

pytestmark = on_each_backend

REFRESH, SITE = "refresh_token", "https://id.example.org"


def test_oidcc_discovery_endpoint_verification(make_app):
    """What Discovery 1.0 requires is there, each address has https, and all keys are public."""
    http = make_app(OPENID="on", BASE_URL=SITE).test_client()
    answer = http.get(DISCOVERY, base_url=SITE)
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    metadata = answer.json
    OpenIDProviderMetadata(metadata).validate()  # Authlib's reading of it
    addresses = [each for name, each in metadata.items() if name.endswith(("_endpoint", "_uri"))]
    assert all(each.startswith(f"{SITE}/") for each in [*addresses, metadata["userinfo_endpoint"]])
    assert metadata["issuer"] == SITE
    assert metadata["response_types_supported"] == ["code"]
    assert {*metadata["grant_types_supported"]} == {"authorization_code", DEVICE_GRANT, REFRESH}
    assert metadata["request_parameter_supported"] is False
    assert metadata["request_uri_parameter_supported"] is False  # the default is true
    assert "openid" in metadata["scopes_supported"] and "sub" in metadata["claims_supported"]
    keys = http.get(metadata["jwks_uri"].removeprefix(SITE), base_url=SITE).json["keys"]
    assert len({each["kid"] for each in keys}) == len(keys) > 0
    for each in keys:
        assert each.keys() == {"kty", "use", "alg", "kid", "n", "e"}  # nothing private
        assert (each["kty"], each["use"], read_key(each).key_size) == ("RSA", "sig", 2048)
