# Runs the script `game.gd` of a project, which is a Button, unchanged:
# godot3-server --path PROJECT --script watch_godot.gd
#
# Prints a line of JSON whenever the button shows something else: its text, and the file of its
# icon. Presses the button whenever the file `press` appears.
extends SceneTree

var game
var folder = Directory.new()
var text = ""
var icon = null
var pictures = 0


func _init():
	game = load("res://game.gd").new()
	get_root().add_child(game)


func _idle(_delta):
	if game.text != text or game.icon != icon:
		text = game.text
		icon = game.icon
		var picture = null
		if icon:
			pictures += 1
			picture = "%d.png" % pictures
			icon.get_data().save_png("res://" + picture)
		print(to_json({"texts": [text], "picture": picture}))
	if folder.file_exists("res://press"):
		folder.remove("res://press")
		for is_pressed in [true, false]:
			var enter = InputEventAction.new()
			enter.action = "ui_accept"
			enter.pressed = is_pressed
			game.grab_focus()
			input_event(enter)
