// Lets a test in another process use a session of a library, as driver.py describes it.

import { createInterface } from "node:readline";

// Answer the calls of the methods of a session. `start` gets the configuration, which is the argument
// of the program, and returns a promise of the session.
export async function answerCalls(start) {
  let session;
  for await (const line of createInterface({ input: process.stdin })) {
    const [method, ...values] = JSON.parse(line);
    let answer;
    try {
      session ??= await start(JSON.parse(process.argv[2]));
      answer = { result: await session[method](...values) };
    } catch (error) {
      answer = { error: describe(error) };
    }
    console.log(JSON.stringify(answer));
  }
}

// oauth4webapi and openid-client have the response, or the error below, as the cause of an error.
function describe({ error, error_description: description, message, status, cause }) {
  return [
    error, description, message, status, cause?.message, cause?.status, cause?.cause?.status,
  ].filter(Boolean).join(" ");
}
