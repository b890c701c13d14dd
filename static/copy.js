// Each element marked data-copy gets a button that copies its text; the value of data-copy is the button's name.
// Without this script the text can be selected and copied all the same.
"use strict";

const copyWords = document.currentScript.dataset;
const CONFIRMATION_TIME = 2000; // milliseconds

// Returns whether the text is in the clipboard. Where it is not, it is selected.
async function copyText(source) {
  // navigator.clipboard is missing on plain http, localhost aside; a browser's settings can forbid it.
  const written = await navigator.clipboard?.writeText(source.textContent).then(
    () => true,
    () => false,
  );
  return written || copySelection(source);
}

function copySelection(source) {
  // The browser would copy what it draws: a block's text gets a line end, for example.
  function copyExactly(event) {
    event.clipboardData.setData("text/plain", source.textContent);
    event.preventDefault();
  }
  getSelection().selectAllChildren(source);
  document.addEventListener("copy", copyExactly);
  const copied = document.execCommand("copy");
  document.removeEventListener("copy", copyExactly);
  if (copied) getSelection().removeAllRanges();
  return copied;
}

function addCopyButton(source) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = copyWords.button;
  button.setAttribute("aria-label", source.dataset.copy);
  const status = document.createElement("span");
  status.setAttribute("role", "status");
  const controls = document.createElement("span");
  controls.className = "copy";
  controls.append(button, status);
  source.after(controls);

  let removal;
  button.addEventListener("click", async () => {
    const copied = await copyText(source);
    clearTimeout(removal);
    status.textContent = copied ? copyWords.copied : copyWords.failed;
    if (copied) removal = setTimeout(() => (status.textContent = ""), CONFIRMATION_TIME);
  });
}

document.querySelectorAll("[data-copy]").forEach(addCopyButton);

// A page that answers a form gets an address of its own: to reload it would send the form again.
const answer = document.querySelector("[data-address]");
if (answer) history.replaceState(null, "", answer.dataset.address);
