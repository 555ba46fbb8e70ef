/** docs/contract.md quotes every statement of the specification and names the tests that prove it. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { STATEMENTS, statementsOf, type Statement } from './specification/statements.ts'

const ROOT = join(import.meta.dirname, '..')

type Row = { id: string; quotes: string[]; proofs: string[] }

const rows: Row[] = readFileSync(join(ROOT, 'docs/contract.md'), 'utf8')
  .split('\n')
  .map((line) => /^\| (\d[\d.]*) \| (.+) \| (.+) \|$/.exec(line))
  .filter((match) => match !== null)
  .map(([, id = '', quotes = '', proofs = '']) => ({ id, quotes: quotes.replaceAll('&lt;', '<').split('<br>'), proofs: proofs.split('<br>') }))

const sectionOf = ({ id }: Row): string => id.slice(0, id.lastIndexOf('.'))

/** What is wrong with a proof, or null. It is a test of a file, what it waits for, or why there is nothing to prove. */
function faultOf(proof: string): string | null {
  if (/^(later|no promise): \S/.test(proof)) return null
  const [, file, name] = /^`(test\/[^`]+\.ts)` "(.+)"$/.exec(proof) ?? []
  if (file === undefined || name === undefined) return `neither a test nor a reason: ${proof}`
  if (!existsSync(join(ROOT, file))) return `no file ${file}`
  return testsOf(readFileSync(join(ROOT, file), 'utf8')).has(name) ? null : `no test "${name}" in ${file}`
}

/** The names of the tests in a file, as they are written there: of `test('…')`, and of the promises of a contract suite. */
function testsOf(source: string): Set<string> {
  const tests = [...source.matchAll(/\btest\(\s*(['"`])((?:\\.|(?!\1).)+)\1,/g), ...source.matchAll(/^\s+(['"`])((?:\\.|(?!\1).)+)\1: async/gm)]
  return new Set(tests.map(([, , name = '']) => name.replaceAll(/\\(['"`])/g, '$1')))
}

t.test('the page quotes every statement of the specification, word by word and in order', async (t) => {
  const quoted = rows.flatMap((row) => row.quotes.map((text): Statement => ({ section: sectionOf(row), text })))
  t.same(quoted, STATEMENTS)
})

t.test('the rows of a section are numbered from 1', async (t) => {
  const sections = Map.groupBy(rows, sectionOf)
  t.same(rows.map(({ id }) => id), [...sections].flatMap(([section, own]) => own.map((_, at) => `${section}.${at + 1}`)))
})

t.test('every test that the page names exists', async (t) => {
  t.same(rows.flatMap(({ id, proofs }) => proofs.map(faultOf).filter((fault) => fault !== null).map((fault) => `${id}: ${fault}`)), [])
})

t.test('statements are sentences, list items and rows of tables, by section', async (t) => {
  const page = '# T\n\nOne. Two {a}.\n\n## 1. S\n\nThree (3.1):\n\n| h | i |\n|---|---|\n| a. B | c |\n\n### 1.1 U\n\n1. Four.\n\n## 2. V\n\n- Five'
  t.same(statementsOf(page).map(({ section, text }) => `${section} ${text}`), ['0 One.', '0 Two {a}.', '1.0 Three (3.1):', '1.0 a.', '1.0 B · c', '1.1 Four.', '2 Five'])
})

t.test('a name counts only where a test has it', async (t) => {
  const source = "t.test('one', f)\n  await t.test(`two ${n}`, { skip }, f)\n// 'three'\nconst text = 'four'\n    'five: it\\'s so': async (t) => {\nt.equal(a, b, 'six')\n"
  t.same([...testsOf(source)], ['one', 'two ${n}', "five: it's so"])
})
