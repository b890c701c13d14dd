// A site that signs in with express-openid-connect.

import express from "express";
// SETTINGS

const app = express();
app.use(signIn);
app.get("/", (request, response) => response.json(request.oidc.user ?? null));
app.listen(process.env.PORT, "127.0.0.1");
