/** Ids, signatures and data of megabytes, which once overflowed the stack of a regular expression. */
import t from 'tap'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { replayedReasoning } from '../../src/upstream/translation/messages-to-responses/thinking-signature.ts'
import { openPromptCounts } from '../../src/upstream/usage/prompt-tokens.ts'

const count = openPromptCounts().bind(null, 'acme/first')
const LONG = 'a'.repeat(20_000_000)
const ids = openIds([Buffer.alloc(48, 1)])('acme/first')

t.test('an id of any length is decrypted, or passed on as it is where it was not encrypted here', async (t) => {
  t.equal(ids.decrypt(ids.encrypt('sealed_', LONG)), LONG)
  for (const foreign of [`call_${LONG}`, `call_${LONG}!`, LONG, `call_${'a'.repeat(10)}`]) t.equal(ids.decrypt(foreign), foreign)
})

t.test('a signature of any length is read, and a foreign one left out', async (t) => {
  t.match(replayedReasoning({ type: 'thinking', thinking: '', signature: `rs_1.sealed_${LONG}` }), { id: 'rs_1', encrypted_content: `sealed_${LONG}` })
  for (const signature of [LONG, `rs_1.sealed_${LONG}!`, `rs_${LONG}.sealed_1`, 'rs_1', '.sealed_1', 'rs_1.']) t.equal(replayedReasoning({ type: 'thinking', signature }), null)
})

t.test('an inline image counts as one, however large it is', async (t) => {
  const image = (data: string) => ({ messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'base64', data } }] }] })
  t.equal(await count(image(LONG)), await count(image('a'.repeat(4096))))
  t.equal(await count(image(`data:image/png;base64,${LONG}`)), await count(image('a'.repeat(4096))))
})
