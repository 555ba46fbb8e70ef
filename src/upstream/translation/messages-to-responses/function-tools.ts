/** The tools of a Messages request as tools of a Responses request. Tools of Anthropic that the client runs become functions of the documented form. */
import { currentTools } from '../../policy/current-tools.ts'
import { CLIENT_TOOLS } from '../../policy/hosted-tools.ts'
import { unsupported } from '../unsupported-parameter.ts'
import { isMembers, own, ownText, type Members } from '../../wires/allowlist.ts'

const string = (description: string): Members => ({ type: 'string', description })
const schema = (properties: Members, required: string[]): Members => ({ type: 'object', properties, required })
const LINES = { type: 'array', items: { type: 'integer' }, description: 'The first and the last line to show. -1 as the last: to the end.' }

const EDITOR_MEMBERS: Members = {
  path: string('Absolute path of a file or folder.'),
  view_range: LINES,
  old_str: string('For str_replace: the text to replace, which occurs once.'),
  new_str: string('For str_replace and insert: the new text.'),
  insert_line: { type: 'integer', description: 'For insert: the line after which the text is inserted.' },
  insert_text: string('For insert: the text to insert.'),
  file_text: string('For create: the content of the file.'),
}

/** By the beginning of their type, which ends with a date. */
const CLIENT_SIDE: Record<string, { description: string; parameters: Members }> = {
  bash_: {
    description: 'Runs a command in a shell that keeps its state between calls.',
    parameters: schema({ command: string('The command.'), restart: { type: 'boolean', description: 'True to restart the shell.' } }, []),
  },
  text_editor_: {
    description: 'Views, creates and edits files.',
    parameters: schema({ command: { type: 'string', enum: ['view', 'create', 'str_replace', 'insert', 'undo_edit'] }, ...EDITOR_MEMBERS }, [
      'command',
      'path',
    ]),
  },
  memory_: {
    description: 'Reads and changes the files of a memory under /memories.',
    parameters: schema(
      {
        command: { type: 'string', enum: ['view', 'create', 'str_replace', 'insert', 'delete', 'rename'] },
        ...EDITOR_MEMBERS,
        old_path: string('For rename: the present path.'),
        new_path: string('For rename: the new path.'),
      },
      ['command'],
    ),
  },
  computer_: {
    description: 'Uses the mouse and keyboard of a screen and takes screenshots.',
    parameters: schema(
      {
        action: string('What to do, such as screenshot, left_click, type, key, scroll, mouse_move or wait.'),
        coordinate: { type: 'array', items: { type: 'integer' }, description: 'x and y in pixels.' },
        start_coordinate: { type: 'array', items: { type: 'integer' }, description: 'x and y where a drag begins.' },
        text: string('The text to type, or the keys to press.'),
        scroll_direction: { type: 'string', enum: ['up', 'down', 'left', 'right'] },
        scroll_amount: { type: 'integer' },
        duration: { type: 'number', description: 'Seconds.' },
      },
      ['action'],
    ),
  },
}

/** Hosted tools with an equivalent. Upstreams get them only where `allow` of the UPSTREAMS file says so; others have none and are left out. */
const HOSTED: Record<string, Members> = { web_search_: { type: 'web_search' } }

/** `tools`, `tool_choice` and `parallel_tool_calls`; none without tools. Throws `unsupported_parameter` for a tool of the client that has no equivalent. */
export function toolMembers(body: Members): Members {
  const tools = currentTools(body).flatMap(([tool, path]) => toolOf(tool, path) ?? [])
  if (tools.length === 0) return {}
  const choice = own(body, 'tool_choice')
  if (!isMembers(choice)) return { tools }
  return {
    tools,
    tool_choice: choiceOf(choice),
    ...(own(choice, 'disable_parallel_tool_use') === true ? { parallel_tool_calls: false } : {}),
  }
}

/** Null for a hosted tool without an equivalent. */
function toolOf(tool: Members, path: string): Members | null {
  const type = ownText(tool, 'type')
  const name = ownText(tool, 'name')
  if (type === '' || type === 'custom') {
    const parameters = own(tool, 'input_schema') ?? { type: 'object', properties: {} }
    // On the Responses wire `strict` is true unless it is false.
    return { type: 'function', name, ...textMember(tool, 'description'), parameters, strict: own(tool, 'strict') === true }
  }
  const known = Object.keys(CLIENT_SIDE).find((prefix) => type.startsWith(prefix) && !type.includes('_toolset_'))
  if (known) return { type: 'function', name, ...CLIENT_SIDE[known], strict: false }
  if (CLIENT_TOOLS.messages.test(type)) throw unsupported(path)
  const hosted = Object.keys(HOSTED).find((prefix) => type.startsWith(prefix))
  return hosted ? { ...HOSTED[hosted] } : null
}

const textMember = (holder: Members, name: string): Members => (ownText(holder, name) === '' ? {} : { [name]: own(holder, name) })

function choiceOf(choice: Members): unknown {
  const type = own(choice, 'type')
  if (type === 'tool') return { type: 'function', name: own(choice, 'name') }
  return type === 'any' ? 'required' : type === 'none' ? 'none' : 'auto'
}
