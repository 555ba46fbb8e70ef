import { validateHeaderName, validateHeaderValue } from 'node:http'
import t from 'tap'
import { isHeaderField } from '../../src/http/header-fields.ts'

/** What Node takes for a request that it sends. */
function isSent(name: string, value: string): boolean {
  try {
    validateHeaderName(name)
    validateHeaderValue(name, value)
    return true
  } catch {
    return false
  }
}

t.test('a header field may be set exactly if Node would send it', async (t) => {
  const characters = [...Array.from({ length: 512 }, (_, code) => String.fromCharCode(code)), '\u2028', '\ud800']
  for (const character of characters) {
    for (const [name, value] of [[`x-${character}`, 'v'], ['x-name', `v${character}v`]] as const) {
      if (isHeaderField(name, value) !== isSent(name, value)) t.fail(`${JSON.stringify([name, value])} is decided otherwise`)
    }
  }
  t.equal(isHeaderField('', 'v'), false)
  t.equal(isHeaderField('x-empty', ''), true)
})
