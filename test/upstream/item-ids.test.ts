/** The ids of the items of a streamed response. */
import t from 'tap'
import { repeatedMembers } from '../../src/upstream/wires/responses/response-object.ts'
import { openResponsesStream } from '../../src/upstream/wires/responses/responses-stream.ts'
import { event, message, response } from '../fakes/upstream-wire.ts'
import { dataOf } from './gateway.ts'
import { ids, rewrite } from './translation.ts'

t.test('an item has one id in all events, also where some leave it out, and after an unknown item', async (t) => {
  const place = { output_index: 1, content_index: 0 }
  const { id: _id, ...unnamed } = message('ab')
  const strange = { type: 'vendor_thing' }
  for (const [first, end] of [[message(''), unnamed], [unnamed, unnamed], [message(''), message('ab')]] as const) {
    const text = [
      event('response.created', { response: response('in_progress') }),
      event('response.output_item.added', { output_index: 0, item: strange }),
      event('response.output_item.added', { output_index: 1, item: { ...first, content: [] } }),
      ...['a', 'b'].map((delta) => event('response.output_text.delta', { ...place, delta })),
      event('response.output_item.done', { output_index: 1, item: end }),
      event('response.completed', { response: response('completed', [strange, end]) }),
    ].join('')
    const found = dataOf(rewrite(openResponsesStream({ ids, repeated: repeatedMembers({}, new Set(), 1000), now: () => 1000 }), [Buffer.from(text)])).flatMap((one) => [one.item_id, one.item?.id, one.response?.output?.[0]?.id]).filter((id) => id !== undefined)
    t.equal(found.length, 5)
    t.equal(new Set(found).size, 1, JSON.stringify(found))
  }
})
