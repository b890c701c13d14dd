// Each password field gets a button that shows what is typed. Without this script there is none.
"use strict";

function addShowButton(field) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "second";
  button.setAttribute("aria-controls", field.id);
  const rest = document.createElement("span"); // of its name, for screen readers
  rest.className = "unseen";
  rest.textContent = ` ${field.labels[0].textContent.toLowerCase()}`;
  button.append("Show", rest);

  function show(isShown) {
    field.type = isShown ? "text" : "password";
    button.firstChild.data = isShown ? "Hide" : "Show";
  }
  button.addEventListener("click", () => show(field.type === "password"));
  // Browsers offer to save a password only from a field of this type.
  field.form.addEventListener("submit", () => show(false));

  const group = document.createElement("div");
  group.className = "password";
  const hadFocus = document.activeElement === field;
  field.replaceWith(group);
  group.append(field, button);
  if (hadFocus) field.focus();
  field.autocapitalize = "off"; // of a shown one, on phones
  field.spellcheck = false; // else some browsers send what is shown to a service
  show(false);
}

document.querySelectorAll('input[type="password"]').forEach(addShowButton);
