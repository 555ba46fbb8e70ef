/** The requests of the README, as a newcomer pastes them: only the ports differ. */
import { execFile, spawn } from 'node:child_process'
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { commandsOf } from '../page-blocks.ts'
import { freePort, TETHER } from '../servers/process.ts'
import { at, get } from './calls.ts'
import { eventually } from './eventually.ts'
import { REPOSITORY, start } from './program.ts'

const run = promisify(execFile)

t.test('the requests of README.md work in their order, and the receiver prints the signed webhook', async (t) => {
  const folder = t.testdir({})
  cpSync(join(REPOSITORY, 'plans'), join(folder, 'plans'), { recursive: true })
  const [chat = '', picture = '', upscale = ''] = commandsOf('README.md', 'One request to each product')
  const [receiver = '', allowing = '', music = ''] = commandsOf('README.md', 'A webhook')
  const [, setting = '', value = ''] = /^(\w+)=(\S+) npm start$/m.exec(allowing) ?? []
  const program = await start({ folder, namespace: 'demo', env: { [setting]: value, SHUTDOWN_SECONDS: '1' } })
  t.teardown(() => program.stop())
  await program.key('demo-coding-key')
  const media = await program.key('demo-media-key')
  const port = await freePort()
  const here = (commands: string) => commands.replaceAll('http://127.0.0.1:8080', program.url).replaceAll('127.0.0.1:3000', `127.0.0.1:${port}`).replace('listen(3000,', `listen(${port},`)
  const pasted = async (commands: string, env: Record<string, string> = {}): Promise<unknown> =>
    JSON.parse((await run('sh', ['-ec', here(commands)], { cwd: folder, env: { ...process.env, ...env } })).stdout)

  t.equal(at(await pasted(chat), 'choices', 0, 'message', 'content'), 'This is the built-in echo, not a model. You said: Hello')
  const id = String(at(await pasted(picture), 'id'))
  const made = await eventually('the picture', async () => {
    const { body } = await get(program, media, `/api/v1/generations/${id}`)
    return at(body, 'status') === 'completed' ? body : null
  })
  t.match(made, { actual_cost: '0.0000' })
  const URL = String(at(made, 'result', 'image_url'))
  t.equal((await fetch(URL)).headers.get('content-type'), 'image/png')
  // Nobody waits for its end: it computes for half a minute.
  t.match(await pasted(upscale.replace(/ -H 'Prefer: wait=60'/, ''), { URL }), { id: /./, operation: 'upscale', status: /^(queued|processing|completed)$/ })

  const printed: string[] = []
  const [tether = '', ...rest] = [...TETHER, 'sh', '-ec', here(receiver)]
  const child = spawn(tether, rest, { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'], detached: true })
  // The shell and the receiver.
  t.teardown(() => child.pid && process.kill(-child.pid, 'SIGKILL'))
  child.stdout.on('data', (chunk) => printed.push(String(chunk)))
  await eventually('the receiver to listen', async () => fetch(`http://127.0.0.1:${port}/`, { method: 'POST' }).then(({ status }) => (status === 401 ? true : null), () => null))
  t.match(await pasted(music), { kind: 'music', status: /^(queued|processing|completed)$/ })
  await eventually('the webhook', async () => (printed.join('').includes("event: 'task.completed'") ? true : null))
  t.match(printed.join(''), /audio_url: 'http/)
})
