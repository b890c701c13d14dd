// The last page in a popup (response_mode=web_message): posts the response to the page that opened it. That page
// closes this window; one of another origin never gets the message.
"use strict";

const PATIENCE = 5000; // milliseconds until the page says that nobody took the response

const section = document.getElementById("response");

function showProblem() {
  section.replaceChildren(document.getElementById("no-opener").content);
  offerToClose(); // popup.js
  section.querySelector("h1").focus();
}

if (window.opener && window.top === window) {
  const message = { type: "authorization_response", response: JSON.parse(section.dataset.response) };
  // Never "*": any page can open this window. Browsers drop the message if the opener has another origin.
  window.opener.postMessage(message, section.dataset.origin);
  setTimeout(showProblem, PATIENCE);
} else {
  showProblem();
}
