/** The rules of ARCHITECTURE.md, held against the tree itself. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, normalize, relative } from 'node:path'
import t, { type Test } from 'tap'
import { declaredMembers, decoratorsDeclared, decoratorsUsed } from './fastify-decorators.ts'

const root = join(import.meta.dirname, '..')

function filesUnder(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .map((name) => join(folder, name))
    .filter((name) => /\.(tsx?|mjs)$/.test(name) && statSync(join(root, name)).isFile())
    .sort()
}

type Import = { from: string; to: string; typeOnly: boolean }

/** Every static and dynamic import of a file: ours as a path from the root, others by package name. */
function importsOf(file: string): Import[] {
  const text = readFileSync(join(root, file), 'utf8')
  const found: Import[] = []
  for (const [, typeOnly, specifier] of text.matchAll(/^(?:import|export)\s+(type\s)?[^'"]*?from\s+'([^']+)'/gm)) {
    found.push({ from: file, to: resolveFrom(file, specifier ?? ''), typeOnly: typeOnly !== undefined })
  }
  for (const [, specifier] of text.matchAll(/(?:^import|\bimport\()\s*'([^']+)'/gm)) {
    found.push({ from: file, to: resolveFrom(file, specifier ?? ''), typeOnly: false })
  }
  return found
}

function resolveFrom(file: string, specifier: string): string {
  return specifier.startsWith('.') ? normalize(join(dirname(file), specifier)) : specifier
}

type Room = 'main' | 'app' | 'bootstrap' | 'config' | 'plugin' | 'interface' | 'adapter' | 'service' | 'domain' | 'tasks' | 'verify' | 'maintenance' | 'concurrency' | 'telemetry' | 'http' | 'json' | 'client' | 'package'

const ROOMS: Record<string, Room> = {
  bootstrap: 'bootstrap', config: 'config', domain: 'domain', tasks: 'tasks', verify: 'verify', maintenance: 'maintenance', concurrency: 'concurrency', telemetry: 'telemetry', http: 'http', json: 'json', upstream: 'service', egress: 'service',
}

/** The room of a source file. Throws for a folder of `src/` that the table of ARCHITECTURE.md does not name. */
function roomOf(file: string): Room {
  if (file === 'src/main.ts') return 'main'
  if (file === 'src/app.ts') return 'app'
  if (file.startsWith('plugins/')) return 'plugin'
  if (file.startsWith('engines/')) return 'package'
  const [, folder = ''] = file.split('/')
  // What several adapters use: a client library, how engines run child processes, and what previews show.
  if (/^src\/backends\/(mongodb|engines\/(process|painter))\//.test(file)) return 'client'
  if (folder === 'backends') return INTERFACE_FILES.has(file) ? 'interface' : 'adapter'
  const room = ROOMS[folder]
  if (!room) throw new Error(`${file} lies in no room of ARCHITECTURE.md`)
  return room
}

/** What all adapters of a backend share: the interface, and the code above it. */
const INTERFACE_FILES = new Set([
  'src/backends/store/store.ts',
  'src/backends/store/task-store.ts',
  'src/backends/store/record-change-options.ts',
  'src/backends/store/group-commit.ts',
  'src/backends/store/record-lease.ts',
  'src/backends/store/queued-command.ts',
  'src/backends/store/write-mode.ts',
  'src/backends/broker/broker.ts',
  'src/backends/resources/resources.ts',
  'src/backends/files/files.ts',
  'src/backends/engines/engine.ts',
  'src/backends/engines/engines-file.ts',
  'src/backends/engines/routing-table.ts',
])

const sources = [...filesUnder('src'), ...filesUnder('engines'), ...filesUnder('plugins')]
/** Texts for people to paste: what they import and read is no code of ours. */
const isSnippet = (file: string) => /^plugins\/dashboard\/web\/(pages\/keys\/snippets-|room\/request-languages)/.test(file)
const imports = sources.filter((file) => !isSnippet(file)).flatMap(importsOf)
const ours = (path: string) => /^(src|engines|plugins)\//.test(path)
const broken = (rule: (found: Import) => boolean) => imports.filter(rule).map(({ from, to }) => `${from} imports ${to}`)
const pluginOf = (file: string) => file.split('/').slice(0, 2).join('/')
/** `src/backends/store/sqlite/tasks.ts` → `src/backends/store`; `src/upstream/sse/sse-parser.ts` → `src/upstream`. */
const roomFolder = (file: string) => file.split('/').slice(0, file.startsWith('src/backends/') ? 3 : 2).join('/')
const sameFolder = (a: string, b: string) => roomFolder(a) === roomFolder(b)

/** Holds the imports of a room against what it may import; `types` are rooms of which it may import types only. */
function mayImport(t: Test, from: Room, rooms: Room[], types: Room[] = []): void {
  t.same(
    broken((found) => {
      if (roomOf(found.from) !== from || !ours(found.to) || sameFolder(found.from, found.to)) return false
      const to = roomOf(found.to)
      return !rooms.includes(to) && !(found.typeOnly && types.includes(to))
    }),
    [],
  )
}

t.test('only config/config.ts reads the environment, and main.ts hands it over', async (t) => {
  const readers = sources.filter((file) => !isSnippet(file) && /process\.env|\benv\.[A-Z_]+\b/.test(readFileSync(join(root, file), 'utf8')))
  t.same(readers.filter((file) => !['src/config/config.ts', 'src/main.ts'].includes(file)), [])
})

t.test('the business knows nothing of HTTP: in src only app.ts, bootstrap and main.ts import Fastify', async (t) => {
  const http = (to: string) => to === 'fastify' || to.startsWith('@fastify/') || to === 'fastify-plugin'
  t.same(broken(({ from, to }) => http(to) && from.startsWith('src/') && !['app', 'bootstrap', 'main'].includes(roomOf(from))), [])
})

t.test('main.ts starts app.ts, with what config, bootstrap, telemetry and the operations listener give it', async (t) => {
  const rooms = ['app', 'config', 'bootstrap', 'telemetry']
  t.same(broken(({ from, to }) => from === 'src/main.ts' && ours(to) && !rooms.includes(roomOf(to)) && to !== 'plugins/ops/ops-listener.ts'), [])
})

t.test('a file exports what it defines: none passes on what another defines', async (t) => {
  t.same(sources.filter((file) => /^export (type )?(\*|\{[^}]*\}) from /m.test(readFileSync(join(root, file), 'utf8'))), [])
})

t.test('config imports nothing else of ours', async (t) => {
  mayImport(t, 'config', [])
})

t.test('bootstrap opens backends and services, and imports no plugin', async (t) => {
  mayImport(t, 'bootstrap', ['config', 'domain', 'interface', 'service', 'telemetry', 'maintenance'], ['tasks'])
})

t.test('a plugin imports its own files and src, never another plugin', async (t) => {
  t.same(broken(({ from, to }) => roomOf(from) === 'plugin' && to.startsWith('plugins/') && pluginOf(from) !== pluginOf(to)), [])
})

t.test("the dashboard's page imports its own files only, and nobody imports them: it speaks HTTP", async (t) => {
  const isPage = (path: string) => path.startsWith('plugins/dashboard/web/')
  t.same(broken(({ from, to }) => ours(to) && isPage(from) !== isPage(to)), [])
  const packages = imports.filter(({ from, to }) => isPage(from) && !ours(to)).map(({ to }) => to)
  t.same([...new Set(packages)].filter((name) => !/^(preact|@preact\/signals)(\/|$)/.test(name)), [])
})

t.test('a plugin knows backends by their interface, never an adapter, and never how they are opened', async (t) => {
  t.same(broken(({ from, to }) => roomOf(from) === 'plugin' && to.startsWith('src/') && ['adapter', 'bootstrap'].includes(roomOf(to))), [])
})

t.test('a plugin declares the decorators that it uses, and no others: Fastify refuses a start without them', async (t) => {
  const texts = (files: string[]) => files.map((file) => readFileSync(join(root, file), 'utf8'))
  for (const holder of ['fastify', 'request'] as const) {
    const known = new Set(texts(sources).flatMap((text) => declaredMembers(text, holder === 'fastify' ? 'FastifyInstance' : 'FastifyRequest')))
    t.ok(known.has(holder === 'fastify' ? 'store' : 'caller'))
    for (const name of readdirSync(join(root, 'plugins'))) {
      const files = sources.filter((file) => file.startsWith(`plugins/${name}/`) && !file.startsWith('plugins/dashboard/web/'))
      // They come before `auth`, which adds the caller.
      const isEarly = (used: string) => used === 'caller' && ['errors', 'ops'].includes(name)
      t.same(decoratorsDeclared(readFileSync(join(root, `plugins/${name}/${name}.ts`), 'utf8'), holder), decoratorsUsed(texts(files), known, holder).filter((used) => !isEarly(used)), `plugins/${name}, ${holder}`)
    }
  }
})

t.test('src imports no plugin but in app.ts, and the operations listener in main.ts', async (t) => {
  t.same(broken(({ from, to }) => from.startsWith('src/') && from !== 'src/app.ts' && !(from === 'src/main.ts' && to === 'plugins/ops/ops-listener.ts') && to.startsWith('plugins/')), [])
})

t.test('domain imports domain and the types of backends', async (t) => {
  mayImport(t, 'domain', [], ['interface', 'service'])
})

t.test('tasks, verify and maintenance import domain and the types of backends', async (t) => {
  mayImport(t, 'tasks', ['domain', 'telemetry'], ['interface', 'service'])
  mayImport(t, 'verify', ['domain', 'tasks'], ['interface', 'service'])
  mayImport(t, 'maintenance', ['domain', 'tasks', 'verify'], ['interface', 'service'])
})

t.test('http and json import the errors of the domain', async (t) => {
  mayImport(t, 'http', ['domain'])
  mayImport(t, 'json', ['domain'])
})

t.test('concurrency imports the errors of the domain', async (t) => {
  t.same(broken(({ from, to }) => roomOf(from) === 'concurrency' && ours(to) && to !== 'src/domain/errors.ts' && !sameFolder(from, to)), [])
})

t.test('telemetry imports nothing of ours, and OpenTelemetry is imported by its implementation alone, which is loaded by need', async (t) => {
  mayImport(t, 'telemetry', [])
  const implementation = 'src/telemetry/opentelemetry.ts'
  t.same(broken(({ from, to }) => to.startsWith('@opentelemetry/') && from !== implementation), [])
  const users = imports.filter(({ to }) => to === implementation).map(({ from }) => from)
  t.same(users, ['src/bootstrap/tracing.ts'])
  t.match(readFileSync(join(root, 'src/bootstrap/tracing.ts'), 'utf8'), "await import('../telemetry/opentelemetry.ts')")
})

t.test('domain, tasks, verify and maintenance have no clock, no randomness and no I/O of their own', async (t) => {
  const impure = /\bDate\.now\(|\bnew Date\(\)|\bMath\.random\(|\brandomUUID|\brandomBytes\(|performance\.now\(|\bsetTimeout\(|\bfetch\(/
  const io = /^(node:)?(fs|net|http|https|child_process|worker_threads|dgram|tls|dns)(\/|$)/
  const isPure = (file: string) => ['domain', 'tasks', 'verify', 'maintenance', 'concurrency'].includes(roomOf(file))
  t.same(sources.filter(isPure).filter((file) => impure.test(readFileSync(join(root, file), 'utf8'))), [])
  t.same(broken(({ from, to }) => isPure(from) && io.test(to)), [])
})

t.test('services import domain and the types of backends', async (t) => {
  mayImport(t, 'service', ['domain', 'concurrency', 'telemetry', 'http', 'json'], ['interface'])
})

t.test('an adapter is loaded by its interface alone, when its address chose it', async (t) => {
  const isAdapter = (path: string) => ours(path) && ['adapter', 'package'].includes(roomOf(path))
  const foreign = imports.filter(({ from, to }) => isAdapter(to) && !sameFolder(from, to) && !(roomOf(from) === 'interface' && roomOf(to) === 'package'))
  t.same(foreign.map(({ from, to }) => `${from} imports ${to}`), [])
  const eager = imports.filter(({ from, to, typeOnly }) => roomOf(from) === 'interface' && isAdapter(to) && !typeOnly)
  const dynamic = eager.filter(({ from, to }) => !readFileSync(join(root, from), 'utf8').includes(`import('${relative(dirname(from), to).replace(/^(?!\.)/, './')}')`))
  t.same(dynamic.map(({ from, to }) => `${from} imports ${to}`), [])
})

t.test('an interface imports domain and types; an adapter its own interface, domain, its client library and the types of services', async (t) => {
  mayImport(t, 'interface', ['domain', 'concurrency', 'package'], ['interface'])
  mayImport(t, 'adapter', ['domain', 'concurrency', 'telemetry', 'http', 'client'], ['interface', 'service'])
  mayImport(t, 'client', ['domain'], ['interface'])
  mayImport(t, 'package', ['interface', 'client', 'domain'])
})

t.test('every adapter has a test that runs the contract of its backend', async (t) => {
  const adapters = ['store/sqlite', 'store/mongodb', 'broker/memory', 'broker/kafka', 'resources/files', 'resources/kubernetes', 'files/disk', 'files/gridfs', 'files/s3', 'engines/preview', 'engines/local', 'engines/openai', 'engines/replicate']
  const missing = adapters.filter((adapter) => {
    const [backend = '', name] = adapter.split('/')
    const folder = join(root, 'test/backends', backend)
    const test = readdirSync(folder).find((file) => file === `${name}.test.ts`)
    return !test || !readFileSync(join(folder, test), 'utf8').includes('contracts/')
  })
  t.same(missing, [])
})

t.test('no file is larger than the largest of today; the number only goes down', async (t) => {
  const LARGEST = 300
  const LARGEST_OF_TESTS = 500
  const larger = (files: string[], most: number) => files.map((file) => ({ file, lines: readFileSync(join(root, file), 'utf8').split('\n').length })).filter(({ lines }) => lines > most)
  t.same(larger(sources, LARGEST), [])
  t.same(larger(['test', 'bench'].flatMap(filesUnder), LARGEST_OF_TESTS), [])
})

type Span = { from: number; to: number }

const BEGINS = /^\s*(export )?(default )?(async )?function\b|=> \{$|^\s+(async )?\*?(?!(if|for|while|switch|catch|else|do|try|return)\b)\w+\(.*\{$/
const indentOf = (line: string) => line.length - line.trimStart().length

/** The functions of a text by their lines. They are found by how the tree is written: a body begins with a brace at the end of a line, and ends with one at the indentation of that line. */
function functionsIn(lines: string[]): Span[] {
  return lines.flatMap((line, from) => {
    if (!BEGINS.test(line) || /^\s*(\/\/|\*|\/\*)/.test(line)) return []
    const level = indentOf(line)
    const to = lines.findIndex((other, at) => at > from && other.trim() !== '' && indentOf(other) <= level && !/^\s*[})\]].*[{(]$/.test(other))
    return to > 0 && /^\s*\}/.test(lines[to] ?? '') && indentOf(lines[to] ?? '') === level ? [{ from, to }] : []
  })
}

/** Its lines, without those of the functions that it holds: each of them is counted for itself. */
function ownLines({ from, to }: Span, all: Span[]): number {
  const inner = all.filter((other) => other.from > from && other.to <= to)
  const outermost = inner.filter((span) => !inner.some((other) => other !== span && other.from <= span.from && other.to >= span.to))
  return outermost.reduce((lines, span) => lines - (span.to - span.from + 1), to - from + 1)
}

t.test('a function is under 60 lines, without the functions that it holds; a closure over state is small enough to be read whole', async (t) => {
  const LONGEST = 60
  // With all that it holds. The number only goes down.
  const LARGEST_CLOSURE = 160
  const long = sources.flatMap((file) => {
    const spans = functionsIn(readFileSync(join(root, file), 'utf8').split('\n'))
    return spans.map((span) => ({ at: `${file}:${span.from + 1}`, own: ownLines(span, spans), whole: span.to - span.from + 1 })).filter(({ own, whole }) => own >= LONGEST || whole >= LARGEST_CLOSURE)
  })
  t.same(long, [])
  const nested = ['function open() {', '  let count = 0', '  function one(', '    a: string,', '  ): void {', '    if (a) {', '      count++', '    }', '  }', '  return {', '    two: () => {', '      one()', '    },', '  }', '}']
  t.same(functionsIn(nested).map((span, _i, all) => [span.from, span.to, ownLines(span, all)]), [[0, 14, 5], [2, 8, 7], [10, 12, 3]])
})

t.test('every exported function has a doc comment; that of one that opens something is the type that it returns', async (t) => {
  const bare = sources.filter((file) => file.endsWith('.ts')).flatMap((file) => {
    const lines = readFileSync(join(root, file), 'utf8').split('\n')
    const declared = lines.flatMap((line, at) => {
      const name = /^export (?:async )?function\*? (\w+)/.exec(line)?.[1]
      return name === undefined || /^open[A-Z]/.test(name) ? [] : [{ name, isDocumented: (lines[at - 1] ?? '').endsWith('*/') }]
    })
    // An overload may have the comment.
    return declared.filter(({ name }) => !declared.some((one) => one.name === name && one.isDocumented)).map(({ name }) => `${file} ${name}`)
  })
  t.same(bare, [])
})

t.test('files fit in the head: half of them are under 100 lines', async (t) => {
  const lines = sources.map((file) => readFileSync(join(root, file), 'utf8').split('\n').length).sort((a, b) => a - b)
  t.ok((lines[Math.floor(lines.length / 2)] ?? 0) < 100)
})

t.test('no package runs a script when it is installed, one because it is forbidden; all of them are in the lockfile, Node for each platform included', async (t) => {
  type Locked = { version?: string; integrity?: string; link?: boolean; hasInstallScript?: boolean; os?: string; cpu?: string; bin?: Record<string, string> }
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as { packages: Record<string, Locked> }
  const installed = Object.entries(packages).filter(([path, { link }]) => path.includes('node_modules/') && !link)
  const { allowScripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { allowScripts: Record<string, boolean> }
  const scripted = installed.filter(([, { hasInstallScript }]) => hasInstallScript).map(([path]) => path.replace('node_modules/', ''))
  t.same(scripted, ['onnxruntime-node'], 'it would download libraries for graphics cards')
  t.same(allowScripts, Object.fromEntries(scripted.map((name) => [name, false])))
  t.same(installed.filter(([, { integrity }]) => integrity === undefined).map(([path]) => path), [])
  const platforms = installed.filter(([, { bin }]) => bin?.['node'] !== undefined).map(([, { os, cpu }]) => `${os} ${cpu}`)
  t.same(platforms.sort(), ['darwin arm64', 'darwin x64', 'linux arm64', 'linux x64'])
})

t.test('no file or folder is called utils, helpers, common, misc, types or index', async (t) => {
  t.same([...sources, ...filesUnder('test')].filter((file) => /(^|\/)(utils?|helpers?|common|misc|types|index)(\/|\.(tsx?|mjs)$)/.test(file)), [])
})

t.test('ONNX Runtime has no telemetry, which newer versions upload', async (t) => {
  const folder = join(root, 'node_modules/onnxruntime-node/bin')
  const libraries = existsSync(folder) ? readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => /libonnxruntime\./.test(name)) : []
  for (const library of libraries) t.notOk(readFileSync(join(folder, library)).includes('events.data.microsoft.com'), library)
})
