// A web site that signs in with Auth.js. The settings of docs/apps/ stand above this.

import { ExpressAuth, getSession } from "@auth/express";
import express from "express";

const { type, issuer, ...common } = identityServer;
const handMade = {
  ...common,
  type: "oauth",
  authorization: { url: `${issuer}/oauth/authorize`, params: { scope: "openid profile email" } },
  token: `${issuer}/oauth/token`,
  userinfo: `${issuer}/oauth/userinfo`,
};
// What the program of that name uses.
const providers = { oidc: identityServer, oauth: { ...handMade, issuer }, "oauth without issuer": handMade };
const config = {
  providers: [providers[process.env.PROVIDER]],
  secret: "a secret of the tests",
  trustHost: true,
  callbacks: { session: ({ session, token }) => ({ ...session, sub: token.sub }) },
};
const app = express();
app.use("/auth/*", ExpressAuth(config));
app.get("/", async (request, response) => response.json(await getSession(request, config)));
app.listen(process.env.PORT, "127.0.0.1");
