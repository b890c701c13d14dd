-- Writes to the file `state` of the world what its players may do, and what they were shown:
-- {"privileges": {name: [...]}, "texts": {name: [...]}}; "here" is no privilege of Minetest.

local texts = {}

local function watch(what)
	local shown = core[what]
	core[what] = function(name, ...)
		texts[name] = texts[name] or {}
		table.insert(texts[name], table.concat({...}, " "))
		return shown(name, ...)
	end
end

watch("show_formspec")
watch("kick_player")

local function write()
	core.after(0.1, write)
	local privileges = {}
	for _, player in ipairs(core.get_connected_players()) do
		local name = player:get_player_name()
		privileges[name] = {}
		for each in pairs(core.get_player_privs(name)) do
			table.insert(privileges[name], each)
		end
		table.insert(privileges[name], "here")
	end
	local state = core.write_json({privileges = privileges, texts = texts})
	core.safe_file_write(core.get_worldpath() .. "/state", state)
end
core.after(0.1, write)
