/** Stop sequences of chat requests over a Responses upstream: the text ends before the first one, however it is split. */
import t from 'tap'
import { openStopFilter } from '../../src/upstream/translation/stop-sequences.ts'
import { completion, message, response, responsesStream } from '../fakes/upstream-wire.ts'
import { assembled, ESTIMATE, json, whole } from './translation.ts'

/** The text before the first sequence. */
function expected(text: string, sequences: string[]): string {
  const found = sequences.map((sequence) => text.indexOf(sequence)).filter((at) => at >= 0)
  return found.length > 0 ? text.slice(0, Math.min(...found)) : text
}

const TEXTS = ['', 'END', 'one END two', 'ENENEND', 'EN', 'aabaabaac', '\n\nHuman: hi', 'x😀y😀END', 'the end', 'ENDEND']
const SEQUENCES = [['END'], ['aabaac', 'baaba'], ['\n\nHuman:', 'END'], ['😀'], ['E', 'END'], ['D', 'EN', 'ND'], ['nothing of it']]

t.test('the text ends before the first sequence, for every way of splitting it', async (t) => {
  for (const sequences of SEQUENCES) {
    for (const text of TEXTS) {
      const characters = [...text]
      let wrong = 0
      for (let splits = 0; splits < 2 ** Math.min(10, Math.max(0, characters.length - 1)); splits++) {
        const filter = openStopFilter(sequences)
        let [piece, passed] = ['', '']
        for (const [n, character] of characters.entries()) {
          piece += character
          if ((splits >> n) & 1) {
            passed += filter.push(piece)
            piece = ''
          }
        }
        passed += filter.push(piece) + filter.flush()
        if (passed !== expected(text, sequences) || filter.stopped() !== sequences.some((sequence) => text.includes(sequence))) wrong++
      }
      t.equal(wrong, 0, JSON.stringify([text, sequences]))
    }
  }
})

t.test('only what may begin a sequence is held back', async (t) => {
  const filter = openStopFilter(['STOP'])
  t.same(['a', 'S', 'T', 'x', 'STO', 'SS'].map(filter.push), ['a', '', '', 'STx', '', 'STOS'])
  t.equal(filter.flush(), 'S')
})

t.test('a streamed answer stops with the finish reason stop, and the upstream is read on for its usage', async (t) => {
  const text = whole('chat', responsesStream('one tw', 'o ST', 'OP thr', 'ee').join(''), { stream: true, stop: ['STOP'] })
  t.match(assembled(text), { content: 'one two ', reasons: ['stop'], usage: { prompt_tokens: 20, completion_tokens: 5 } })
  t.notOk(text.includes('thr'))
})

t.test('a stopped answer whose upstream writes on for long, fails or ends without usage has the estimated one', async (t) => {
  const begun = responsesStream('one tw', 'o ST', 'OP thr', 'ee').slice(0, -5).join('')
  const long = responsesStream('one two STOP', ...Array.from({ length: 80 }, () => 'x'.repeat(1000))).join('')
  const estimated = { content: 'one two ', reasons: ['stop'], usage: { prompt_tokens: ESTIMATE.input, completion_tokens: ESTIMATE.output } }
  for (const given of [begun, `${begun}event: error\ndata: {"type":"error","error":{}}\n\n`, `${begun}data: {{\n\n`, long])
    t.match(assembled(whole('chat', given, { stream: true, stop: ['STOP'] })), estimated)
})

t.test('an answer without the sequence is complete, with its reported usage', async (t) => {
  const built = assembled(whole('chat', responsesStream('one two ST').join(''), { stream: true, stop: 'STOP' }))
  t.match(built, { content: 'one two ST', reasons: ['stop'], usage: { prompt_tokens: 20, completion_tokens: 5 } })
})

t.test('a JSON answer ends before the sequence, without the calls that follow, and has the usage that the upstream reported', async (t) => {
  const call = { id: 'fc_1', type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' }
  const cut = json('chat', response('completed', [message('one STOP two'), call]), { stop: ['STOP'] })
  t.match(cut, { choices: [{ finish_reason: 'stop', message: { content: 'one ' } }], usage: { completion_tokens: 5 } })
  t.equal(cut.choices[0].message.tool_calls, undefined)
  t.equal(json('chat', response('completed', [message('STOP')]), { stop: ['STOP'] }).choices[0].message.content, '')
  t.match(json('chat', response('completed', [message('one'), call]), { stop: ['STOP'] }), { choices: [{ finish_reason: 'tool_calls', message: { content: 'one', tool_calls: [{}] } }] })
  t.throws(() => json('chat', completion('x'), { stop: ['STOP'] }))
})
