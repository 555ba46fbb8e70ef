import { existsSync, globSync, readFileSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { EXAMPLES } from '../docs/media-examples.ts'
import { PARTS, withPart } from '../docs/tables.ts'
import { GenerationRequest, OperationRequest } from '../plugins/media/request-schemas.ts'
import { KINDS } from '../src/domain/media-generations.ts'
import { OPERATIONS } from '../src/domain/media-operations.ts'
import { strictValidator } from '../src/domain/request-validation.ts'

const ROOT = join(import.meta.dirname, '..')
const PAGES = globSync(['*.md', '{docs,examples,charts}/**/*.md'], { cwd: ROOT })
const textOf = (page: string) => readFileSync(join(ROOT, page), 'utf8').replaceAll(/^```[^]*?^```/gm, '')

/** The anchors of a page's headings, as forges make them. */
function anchorsOf(page: string): Set<string> {
  const headings = [...textOf(page).matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => heading.replaceAll(/\[(.+?)\]\(.+?\)/g, '$1'))
  return new Set(headings.map((heading) => heading.toLowerCase().replaceAll(/[^\p{L}\p{N}\s_-]/gu, '').replaceAll(/\s/g, '-')))
}

for (const { page, name, text } of PARTS) {
  t.test(`docs/${page} has the ${name} of the code`, async (t) => {
    const written = readFileSync(join(import.meta.dirname, '../docs', page), 'utf8')
    t.equal(written, withPart(written, name, text), 'npm run docs writes it')
  })
}

t.test('every kind and operation has an example in docs/media.md, with a picture that exists; together they are small', async (t) => {
  t.same(EXAMPLES.map(({ kind }) => kind).sort(), [...KINDS, ...OPERATIONS].sort())
  const sizes = EXAMPLES.map(({ kind }) => statSync(join(import.meta.dirname, '../docs/media', `${kind}.jpg`)).size)
  t.ok(sizes.every((size) => size > 1000) && sizes.reduce((sum, size) => sum + size, 0) < 600_000, `${sizes}`)
})

t.test('an example is a valid request, as its schema takes it', async (t) => {
  for (const { body, sources } of EXAMPLES) {
    for (const request of [body, ...Object.values(sources)].filter((one) => Object.keys(one).length > 0)) {
      const check = strictValidator({ schema: 'kind' in request ? GenerationRequest : OperationRequest, httpPart: 'body' })
      t.equal(check(structuredClone(request)), true, JSON.stringify(request))
    }
  }
})

t.test('docs/logs.md has the event and the message of every log line of the code that has an event', async (t) => {
  const documented = [...readFileSync(join(ROOT, 'docs/logs.md'), 'utf8').matchAll(/^\| `([a-z]+(?:_[a-z]+)+)` \| `(.+?)` \|/gm)].map(([, event = '', message = '']) => ({ event, message }))
  const sources = globSync(['src/**/*.ts', 'plugins/**/*.ts'], { cwd: ROOT }).map((file) => readFileSync(join(ROOT, file), 'utf8'))
  const logged = new Set(sources.flatMap((source) => [...source.matchAll(/event: '([a-z]+(?:_[a-z]+)+)'/g)].map(([, event = '']) => event)))
  t.same(documented.map(({ event }) => event).sort(), [...logged].sort())
  const stale = documented.filter(({ event, message }) => !sources.some((source) => source.includes(`event: '${event}'`) && source.includes(message)))
  t.same(stale, [], 'each message is that of its event')
})

t.test('the message of a log line is constant, and its `event` names the line and not what it is about', async (t) => {
  const sources = globSync(['src/**/*.ts', 'plugins/**/*.ts'], { cwd: ROOT, exclude: ['plugins/dashboard/web/**'] })
  for (const file of sources) {
    for (const [call, members = '', message = ''] of readFileSync(join(ROOT, file), 'utf8').matchAll(/\blog\.(?:info|warn|error|fatal)\(\s*\{(.*?)\},\s+(.+?)(?:\)|,?\n)/gs)) {
      t.notMatch(members, /\bevent: \w+\./, `${file}: ${call}`)
      t.match(message, /^['"]|^message$/, `${file}: ${call}`)
    }
  }
})

t.test('every link of a page leads to a file, and to a section, that exists', async (t) => {
  const broken = PAGES.flatMap((page) =>
    [...textOf(page).matchAll(/\]\(([\w./-]*)(?:#([^)\s]+))?\)/g)].flatMap(([, path = '', anchor = '']) => {
      const target = path === '' ? page : join(dirname(page), path)
      const leads = existsSync(join(ROOT, target)) && (anchor === '' || anchorsOf(target).has(anchor))
      return leads ? [] : [`${page}: ${path}#${anchor}`]
    }),
  )
  t.same(broken, [])
})

t.test('every file of the tree that a page for developers names exists', async (t) => {
  const files = globSync(['*', '{.ci,bench,bin,charts,crds,docs,examples,image,plans,plugins,runtime,src,test}/**/*'], { cwd: ROOT }).map((file) => `/${file}`)
  const missing = ['ARCHITECTURE.md', 'CONTRIBUTING.md', 'SECURITY.md', 'STYLE.md'].flatMap((page) =>
    [...textOf(page).matchAll(/`((?:[\w.-]+\/)*[\w.-]+\.(?:tsx?|mjs|ya?ml|md)|(?:src|plugins|test|docs)\/[\w./-]+)`/g)]
      .map(([, name = '']) => name)
      .filter((name) => !/^plugins\/[xy]$/.test(name) && !files.some((file) => file.endsWith(`/${name.replace(/\/$/, '')}`)))
      .map((name) => `${page}: ${name}`),
  )
  t.same(missing, [])
})
