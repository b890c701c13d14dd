// AppAuth-JS as a native app: it opens a browser, and listens at a redirect URI on this machine
// (RFC 8252 7.3). It is bundled, because its modules import each other without file extensions.

import { readFile } from "node:fs/promises";
import {
  AuthorizationNotifier, AuthorizationRequest, AuthorizationServiceConfiguration,
  BaseTokenRequestHandler, GRANT_TYPE_AUTHORIZATION_CODE, GRANT_TYPE_REFRESH_TOKEN,
  RevokeTokenRequest, setFlag, TokenRequest,
} from "@openid/appauth";
import {
  NodeBasedHandler, NodeCrypto, NodeRequestor,
} from "@openid/appauth/built/src/node_support/index.js";
import { answerCalls } from "./calls.mjs";

setFlag("IS_LOG", false); // it logs to standard output

answerCalls(async (configuration) => {
  const { authorization_endpoint, token_endpoint, client_id, redirect_uri } = configuration;
  const service = new AuthorizationServiceConfiguration({
    authorization_endpoint, token_endpoint, revocation_endpoint: `${configuration.issuer}/oauth/revoke`,
  });
  const requestor = new NodeRequestor();
  const tokenHandler = new BaseTokenRequestHandler(requestor);
  const request = new AuthorizationRequest(
    { client_id, redirect_uri, scope: configuration.scope }, new NodeCrypto(), configuration.pkce,
  );
  let arrival;
  let code;
  let token;

  // The browser goes to the redirect URI, where the library listens, once.
  async function receiveCode(callback) {
    await fetch(callback);
    const { response, error } = await arrival;
    if (error) throw new Error(`${error.error} ${error.errorDescription}`);
    return response.code;
  }

  return {
    async authorize() {
      const notifier = new AuthorizationNotifier();
      arrival = new Promise((resolve) => {
        notifier.setAuthorizationListener((_, response, error) => resolve({ response, error }));
      });
      const handler = new NodeBasedHandler(Number(new URL(redirect_uri).port));
      handler.setAuthorizationNotifier(notifier);
      handler.performAuthorizationRequest(service, request);
      return readFile(process.env.OPENED, "utf8"); // what xdg-open writes
    },

    async exchange(callback) {
      code ??= await receiveCode(callback);
      const extras = {};
      const verifier = request.internal?.code_verifier;
      if (verifier) extras.code_verifier = verifier;
      if (configuration.client_secret) extras.client_secret = configuration.client_secret;
      token = await tokenHandler.performTokenRequest(service, new TokenRequest({
        grant_type: GRANT_TYPE_AUTHORIZATION_CODE, code, client_id, redirect_uri, extras,
      }));
      return [token.tokenType, token.expiresIn];
    },

    async refresh() {
      const { refreshToken: refresh_token } = token;
      const extras = configuration.client_secret ? { client_secret: configuration.client_secret } : {};
      token = await tokenHandler.performTokenRequest(service, new TokenRequest({
        grant_type: GRANT_TYPE_REFRESH_TOKEN, refresh_token, client_id, redirect_uri, extras,
      }));
      return [token.tokenType, token.expiresIn];
    },

    revoke: () => tokenHandler.performRevokeTokenRequest(service, new RevokeTokenRequest({
      token: token.refreshToken, token_type_hint: "refresh_token",
      client_id, client_secret: configuration.client_secret,
    })),

    whois() {
      const headers = { Authorization: `Bearer ${token.accessToken}` };
      return requestor.xhr({ url: configuration.whois, method: "GET", dataType: "json", headers });
    },
  };
});
