// A site that signs in with Auth.js, by issuer or, with TYPE=oauth, by endpoints.

import { ExpressAuth, getSession } from "@auth/express";
import express from "express";

// SETTINGS
const { issuer } = identityServer;
const endpoints = {
  type: "oauth",
  authorization: { url: `${issuer}/oauth/authorize`, params: { scope: "openid profile email" } },
  token: `${issuer}/oauth/token`,
  userinfo: `${issuer}/oauth/userinfo`,
};
const provider = { ...identityServer, ...(process.env.TYPE === "oauth" ? endpoints : {}) };
const config = { providers: [provider], secret: "a secret of the tests", trustHost: true };
const app = express();
app.use("/auth/*", ExpressAuth(config));
app.get("/", async (request, response) => response.json(await getSession(request, config)));
app.listen(process.env.PORT, "127.0.0.1");
