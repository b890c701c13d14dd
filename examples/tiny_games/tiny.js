// What the tiny games share: a line of text, a board of buttons, and a button below it.

const [message, board, button] = ["message", "board", "button"].map((id) => document.getElementById(id));

export function say(text) {
  message.textContent = text;
}

// Returns the cells of a new board, row by row. `press` gets the number of each cell that the player presses.
export function makeBoard(columns, rows, press) {
  const cells = Array.from({ length: columns * rows }, (_, number) => {
    const cell = document.createElement("button");
    cell.ariaLabel = `Row ${Math.floor(number / columns) + 1}, column ${(number % columns) + 1}`;
    cell.addEventListener("click", () => press(number));
    return cell;
  });
  board.style.setProperty("--columns", columns);
  board.style.setProperty("--rows", rows);
  board.replaceChildren(...cells);
  return cells;
}

// Shows the button below the board with this text, or hides it for "".
export function offer(text, press) {
  [button.hidden, button.textContent, button.onclick] = [!text, text, press];
}

export function shuffle(items) {
  return items.map((item) => [Math.random(), item]).sort(([a], [b]) => a - b).map(([, item]) => item);
}
