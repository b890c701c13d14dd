// oauth4webapi, configured by the metadata of the server (RFC 8414).

import * as oauth from "oauth4webapi";
import { answerCalls } from "./calls.mjs";

const HTTP = { [oauth.allowInsecureRequests]: true };
const AUTHENTICATION = {
  none: oauth.None,
  client_secret_basic: oauth.ClientSecretBasic,
  client_secret_post: oauth.ClientSecretPost,
};

async function readMetadata(issuer) {
  const response = await oauth.discoveryRequest(issuer, { algorithm: "oauth2", ...HTTP });
  return oauth.processDiscoveryResponse(issuer, response);
}

answerCalls(async (configuration) => {
  const server = await readMetadata(new URL(configuration.issuer));
  const client = { client_id: configuration.client_id };
  const authentication = AUTHENTICATION[configuration.method](configuration.client_secret);
  const state = oauth.generateRandomState();
  const verifier = configuration.pkce ? oauth.generateRandomCodeVerifier() : oauth.nopkce;
  let token;

  return {
    async authorize() {
      const address = new URL(server.authorization_endpoint);
      address.searchParams.set("response_type", "code");
      address.searchParams.set("client_id", client.client_id);
      address.searchParams.set("redirect_uri", configuration.redirect_uri);
      address.searchParams.set("scope", configuration.scope);
      address.searchParams.set("state", state);
      if (configuration.pkce) {
        const challenge = await oauth.calculatePKCECodeChallenge(verifier);
        address.searchParams.set("code_challenge", challenge);
        address.searchParams.set("code_challenge_method", "S256");
      }
      return address.href;
    },

    async exchange(callback) {
      const parameters = oauth.validateAuthResponse(server, client, new URL(callback), state);
      const response = await oauth.authorizationCodeGrantRequest(
        server, client, authentication, parameters, configuration.redirect_uri,
        verifier, HTTP,
      );
      token = await oauth.processAuthorizationCodeResponse(server, client, response);
      return [token.token_type, token.expires_in];
    },

    async refresh() {
      const response = await oauth.refreshTokenGrantRequest(
        server, client, authentication, token.refresh_token, HTTP,
      );
      token = await oauth.processRefreshTokenResponse(server, client, response);
      return [token.token_type, token.expires_in];
    },

    async introspect() {
      const response = await oauth.introspectionRequest(
        server, client, authentication, token.refresh_token, HTTP,
      );
      return oauth.processIntrospectionResponse(server, client, response);
    },

    async revoke() {
      const response = await oauth.revocationRequest(
        server, client, authentication, token.refresh_token, HTTP,
      );
      await oauth.processRevocationResponse(response);
    },

    async whois() {
      const address = new URL(configuration.whois);
      const response = await oauth.protectedResourceRequest(
        token.access_token, "GET", address, undefined, undefined, HTTP,
      );
      return response.json();
    },
  };
});
