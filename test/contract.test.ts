/** Checks docs/contract.md, which names the test that proves each sentence of the specification. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'

const ROOT = join(import.meta.dirname, '..')

/** Number of sentences in each section of the specification; `.0` is the part before the first subsection. */
const SENTENCES: Record<string, number> = {
  '1': 15, '2.1': 4, '2.2': 3, '2.3': 1, '2.4': 2, '3': 5, '4.0': 2, '4.1': 4, '4.2': 2, '4.3': 4, '4.4': 1,
  '5': 6, '6.0': 2, '6.1': 3, '6.2': 3, '6.3': 5, '6.4': 4, '7': 4, '8': 6, '9': 3,
}

type Row = { id: string; sentence: string; proofs: string[] }

const rows: Row[] = readFileSync(join(ROOT, 'docs/contract.md'), 'utf8')
  .split('\n')
  .map((line) => /^\| (\d[\d.]*) \| (.+) \| (.+) \|$/.exec(line))
  .filter((match) => match !== null)
  .map(([, id = '', sentence = '', proofs = '']) => ({ id, sentence, proofs: proofs.split('<br>') }))

/** The fault of a proof, or null: a valid proof names a later feature, or a test that exists in its file. */
function faultOf(proof: string): string | null {
  if (/^later: \S/.test(proof)) return null
  const [, file, name] = /^`(test\/[^`]+\.test\.ts)` "(.+)"$/.exec(proof) ?? []
  if (file === undefined || name === undefined) return `neither a test nor later: ${proof}`
  if (!existsSync(join(ROOT, file))) return `there is no ${file}`
  const names = readFileSync(join(ROOT, file), 'utf8').replaceAll("\\'", "'")
  return ["'", '"', '`'].some((quote) => names.includes(`${quote}${name}${quote}`)) ? null : `${file} has no test "${name}"`
}

t.test('every sentence of the specification has one row, in order', async (t) => {
  const expected = Object.entries(SENTENCES).flatMap(([section, count]) => Array.from({ length: count }, (_, i) => `${section}.${i + 1}`))
  t.same(rows.map(({ id }) => id), [...expected].sort((a, b) => a.localeCompare(b, 'en', { numeric: true })))
})

t.test('every row has a proof, and every test that it names is there', async (t) => {
  t.same(rows.flatMap(({ id, proofs }) => proofs.map(faultOf).filter((fault) => fault !== null).map((fault) => `${id}: ${fault}`)), [])
})
