// The consent page loads this before its body, so that its Allow is held back from when it is there.
"use strict";

const whenItIsThere = new MutationObserver(() => {
  const allow = document.querySelector("[value=allow]");
  if (!allow) return;
  whenItIsThere.disconnect();
  holdBack(allow); // hold.js: the page that opened this one could time a click
});
whenItIsThere.observe(document, { childList: true, subtree: true });
