// openid-client, configured by the metadata of the server (RFC 8414).

import * as openid from "openid-client";
import { answerCalls } from "./calls.mjs";

const AUTHENTICATION = {
  none: openid.None,
  client_secret_basic: openid.ClientSecretBasic,
  client_secret_post: openid.ClientSecretPost,
};

answerCalls(async (configuration) => {
  const config = await openid.discovery(
    new URL(configuration.issuer), configuration.client_id, undefined,
    AUTHENTICATION[configuration.method](configuration.client_secret),
    { algorithm: "oauth2", execute: [openid.allowInsecureRequests] },
  );
  const state = openid.randomState();
  const verifier = configuration.pkce ? openid.randomPKCECodeVerifier() : undefined;
  let token, started;

  async function challenge() {
    if (!verifier) return {};
    const code_challenge = await openid.calculatePKCECodeChallenge(verifier);
    return { code_challenge, code_challenge_method: "S256" };
  }

  return {
    async authorize() {
      const { redirect_uri, scope } = configuration;
      const parameters = { redirect_uri, scope, state, ...(await challenge()) };
      return openid.buildAuthorizationUrl(config, parameters).href;
    },

    async exchange(callback) {
      token = await openid.authorizationCodeGrant(config, new URL(callback), {
        expectedState: state,
        pkceCodeVerifier: verifier,
      });
      return [token.token_type, token.expires_in];
    },

    // RFC 8628: returns what a program without a browser shows.
    async start_on_device() {
      started = await openid.initiateDeviceAuthorization(config, { scope: configuration.scope });
      return [started.user_code, started.verification_uri];
    },

    async poll() {
      token = await openid.pollDeviceAuthorizationGrant(config, { ...started, interval: 0.1 });
      return [token.token_type, token.expires_in];
    },

    async refresh() {
      token = await openid.refreshTokenGrant(config, token.refresh_token);
      return [token.token_type, token.expires_in];
    },

    introspect: () => openid.tokenIntrospection(config, token.refresh_token),

    revoke: () => openid.tokenRevocation(config, token.refresh_token),

    async whois() {
      const address = new URL(configuration.whois);
      const response = await openid.fetchProtectedResource(
        config, token.access_token, address, "GET",
      );
      return response.json();
    },
  };
});
