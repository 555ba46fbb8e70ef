import { createHmac, hkdfSync } from 'node:crypto'
import t from 'tap'
import { open, seal } from '../../src/domain/api-keys.ts'
import { deriveKeys, formatDerivedKeys, parseDerivedKeys } from '../../src/domain/derived-keys.ts'
import { signedFileUrl } from '../../src/domain/signed-urls.ts'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'

const [OLD, NEW] = [Buffer.alloc(32, 1), Buffer.alloc(32, 2)]

t.test('derived keys survive their file, in the order of the sealing keys', async (t) => {
  const derived = deriveKeys([NEW, OLD])
  t.same(parseDerivedKeys(formatDerivedKeys(derived)), derived)
  t.same(parseDerivedKeys(`\r\n${formatDerivedKeys(derived).replaceAll('\n', '\r\n\r\n')}`), derived)
  t.same(formatDerivedKeys(derived), formatDerivedKeys(deriveKeys([NEW])) + formatDerivedKeys(deriveKeys([OLD])))
})

t.test('a file of anything else is refused, a sealing key above all', async (t) => {
  const line = formatDerivedKeys(deriveKeys([OLD]))
  for (const text of ['', '\n', OLD.toString('base64'), `${line}${OLD.toString('base64')}\n`, line.slice(8), 'not base64!']) t.equal(parseDerivedKeys(text), null, text)
})

t.test('each purpose has a key of its own, and none opens an API key', async (t) => {
  const derived = deriveKeys([OLD])
  const keys = [OLD, ...Object.values(derived).flat()].map((key) => key.subarray(0, 32))
  t.equal(new Set(keys.map((key) => key.toString('hex'))).size, 4)
  const sealed = seal('svc_live_x', 'uid-1', [OLD], Buffer.alloc(12, 3))
  t.same(keys.map((key) => open(sealed, 'uid-1', [key])), ['svc_live_x', null, null, null])
})

t.test('links and ids of earlier releases stay valid', async (t) => {
  const derived = deriveKeys([OLD])
  const linkKey = Buffer.from(hkdfSync('sha256', OLD, '', 'tollgate file links v1', 32))
  t.equal(signedFileUrl('a-1', 1_700_000_000_000, derived.links), `/files/a-1?exp=1700000000&sig=${createHmac('sha256', linkKey).update('a-1\n1700000000').digest('base64url')}`)
  // As an earlier release encrypted it under this sealing key.
  t.equal(openIds(derived.ids)('acme/first').decrypt('call_He7WQuxNqcVMCo0IMzFXYtdCyksg'), 'vendor:call:1')
})
