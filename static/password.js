// Each password field gets a button that shows what is typed. Without this script there is none.
"use strict";

const passwordWords = document.currentScript.dataset;

function addShowButton(field) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "second";
  button.setAttribute("aria-controls", field.id);
  const label = field.labels[0].textContent;

  function show(isShown) {
    field.type = isShown ? "text" : "password";
    button.textContent = isShown ? passwordWords.hide : passwordWords.show;
    const name = isShown ? passwordWords.hideField : passwordWords.showField; // for screen readers
    button.setAttribute("aria-label", name.replace("{}", label));
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
