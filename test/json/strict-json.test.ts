import t from 'tap'
import { Failure, FAILURES } from '../../src/domain/errors.ts'
import { parseIncrementally } from '../../src/json/incremental-json.ts'
import { MAX_DEPTH, MAX_NUMBER_LENGTH, MAX_VALUES, type Manner } from '../../src/json/json-faults.ts'
import { parseStrictJson, textOf } from '../../src/json/strict-json.ts'

const MANNERS: Manner[] = ['strict', 'faithful']

/** Parses with both parsers, which have to agree. */
function parse(text: string | Buffer, manner: Manner): unknown {
  const bytes = Buffer.from(text)
  const [whole, sliced] = [parseStrictJson(bytes, manner), incrementally(bytes, manner)]
  t.same(sliced, whole)
  t.equal(JSON.stringify(sliced.value), JSON.stringify(whole.value))
  return whole.value
}

function incrementally(bytes: Buffer, manner: Manner): { value: unknown; values: number } {
  const steps = parseIncrementally(textOf(bytes), manner)
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
  }
}

function failureOf(text: string | Buffer, manner: Manner): Failure | null {
  const [whole, sliced] = [parseStrictJson, incrementally].map((parser) => {
    try {
      parser(Buffer.from(text), manner)
      return null
    } catch (error) {
      if (error instanceof Failure) return error
      throw error
    }
  })
  // Of several faults in a text that is no JSON they report different ones.
  const isReported = whole?.message !== FAILURES.invalid_json[2] && sliced?.message !== FAILURES.invalid_json[2]
  t.same([sliced?.code, isReported && sliced?.message], [whole?.code, isReported && whole?.message], `${manner} ${text.slice(0, 100)}`)
  return whole ?? null
}

t.test('valid JSON has the value that JSON.parse returns', async (t) => {
  const texts = ['{}', '[]', ' [1, "a", {"a": {"b": [null, true, -1.5e2]}}] ', '"\\"\\\\"', '{"a":1,"b":{"a":2},"c":[{"a":3},{"a":4}]}', '{"a":"{\\"a\\":1,\\"a\\":2}"}', '{"a,":1,"b:":2}', '"\\ud83d\\ude00"', '"\\\\ud83d"', '0', '\uFEFF{}']
  for (const text of texts) for (const manner of MANNERS) t.same(parse(text, manner), JSON.parse(text.replace(/^\uFEFF/, '')), `${manner} ${text}`)
})

t.test('a member that is there twice is refused by its path, however it is spelled', async (t) => {
  const rows = [
    ['{"a":1,"a":2}', '/a'],
    ['{"a":1,"\\u0061":2}', '/a'],
    ['{"a":{"b":1},"c":[0,{"d":1,"e":2,"d":3}]}', '/c/1/d'],
    ['{"max_cost":"1","prompt":"x","max_cost":"9"}', '/max_cost'],
    ['{"a":{"a":{"a":1}},"b":[[],[]],"b":0}', '/b'],
    ['{"x/y~z":1,"x/y~z":1}', '/x~1y~0z'],
    ['{"":1,"":2}', '/'],
    [`{${Array.from({ length: 100 }, (_, i) => `"m${i}":[{}]`).join()},"m3":0}`, '/m3'],
    ['[[],{"a":1,"a":1}]', '/1/a'],
  ] as const
  for (const [text, path] of rows) {
    for (const manner of MANNERS) t.match(failureOf(text, manner), { code: 'invalid_json', status: 400, facts: { errors: [{ path, code: 'duplicate', message: 'occurs more than once' }] } }, text)
  }
  t.match(failureOf('{"a":{"b":1,"b":2}}', 'strict'), { message: '/a/b occurs more than once.', facts: { param: 'a.b' } })
  for (const manner of MANNERS) {
    t.match(failureOf('{"messages":[{"content":1,"content":2}]}', manner), { facts: { param: 'messages[0].content' } })
    t.match(failureOf('[{"logit_bias":{"1":2,"1":3}}]', manner), { facts: { param: '[0].logit_bias.1' } })
  }
})

t.test('an escaped name is read as it is, whatever was read before', async (t) => {
  for (let i = 0; i < 3; i++) {
    t.same(Object.keys(parse('{"a":1,"\\\\":2}', 'strict') as object), ['a', '\\'])
    for (const [name, expected] of [['\\n', '\n'], ['\\"', '"'], ['\\u0041', 'A']]) t.same(Object.keys(parse(`{"a":1,"${name}":2}`, 'strict') as object), ['a', expected])
  }
})

t.test('half of a surrogate pair is refused with its place, and so are bytes that are not UTF-8', async (t) => {
  const rows = [['{"prompt":"a\\ud800"}', '/prompt'], ['{"a":["","\\udc00\\ud800"]}', '/a/1'], ['{"\\uD83D":1}', '/\uFFFD'], ['"\\\\\\ud800"', '']] as const
  for (const [text, path] of rows) for (const manner of MANNERS) t.match(failureOf(text, manner), { code: 'invalid_json', facts: { errors: [{ path, code: 'surrogate' }] } }, text)
  for (const manner of MANNERS) t.match(failureOf(Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]), manner), { code: 'invalid_json', message: /UTF-8/ })
})

t.test('a number that a double does not hold is refused, or keeps its digits in forwarded bodies', async (t) => {
  for (const number of ['1e999', '9007199254740993', '-12345678901234567890', `1${'0'.repeat(400)}`]) {
    t.match(failureOf(`{"seed":${number}}`, 'strict'), { code: 'invalid_json', facts: { errors: [{ path: '/seed', code: 'maximum' }] } }, number)
    t.equal(JSON.stringify(parse(`{"seed":${number}}`, 'faithful')), `{"seed":${number}}`)
  }
  for (const number of ['9007199254740991', '0.30000000000000004', '1e2', '3.141592653589793238']) t.same(parse(`[${number}]`, 'strict'), [Number(number)])
})

t.test('names that enable prototype pollution are refused, or are ordinary members of forwarded bodies', async (t) => {
  for (const [text, path] of [['{"__proto__":{"a":1}}', '/__proto__'], ['{"a":[{"constructor":{"prototype":{}}}]}', '/a/0/constructor/prototype'], ['{"\\u005f_proto__":1}', '/__proto__']] as const) {
    t.match(failureOf(text, 'strict'), { code: 'invalid_json', facts: { errors: [{ path, code: 'not_allowed' }] } }, text)
    t.equal(JSON.stringify(parse(text, 'faithful')), text.replace('\\u005f', '_'))
  }
  t.same(parse('{"constructor":"x","prototype":1}', 'strict'), { constructor: 'x', prototype: 1 })
})

t.test('depth, the number of values and the length of a number are bounded', async (t) => {
  const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`
  for (const manner of MANNERS) {
    t.equal(failureOf(nested(MAX_DEPTH), manner), null)
    t.match(failureOf(nested(MAX_DEPTH + 1), manner), { code: 'invalid_json', message: /deeper/ })
    t.match(failureOf('{"a":'.repeat(100_000), manner), { code: 'invalid_json', message: /deeper/ })
    for (const value of ['1', '""', 'true', 'false', 'null', '[]', '{}', '-1.5e2']) {
      t.equal(failureOf(`[${`${value},`.repeat(MAX_VALUES - 2)}0]`, manner), null)
      t.match(failureOf(`[${`${value},`.repeat(MAX_VALUES - 1)}0]`, manner), { code: 'invalid_json', message: /more than 100000 values/ }, value)
    }
    t.match(failureOf(`{${Array.from({ length: MAX_VALUES }, (_, i) => `"${i}":0`).join()}}`, manner), { code: 'invalid_json', message: /values/ })
    t.equal(failureOf(`[-${'9'.repeat(MAX_NUMBER_LENGTH)}.5]`, manner)?.facts.errors?.[0]?.code, 'length')
  }
})

t.test('invalid JSON is refused', async (t) => {
  const texts = ['', ' ', '{', '}', ']]]', '{"a"', '{"a":}', '{a:1}', "{'a':1}", '[1,]', '{"a":1,}', '01', '1.', '-', '-01', '1e', '.5', '+1', 'tru', 'nulll', '[1 1]', '{"a" 1}', '{"a":1 "b":2}', '{,}', '[,1]', '{"a"::1}', '[1:2]', 'NaN', 'Infinity', '"\n"', '"\\x"', '"\\u00"', '{"a":1}{"a":1}', '/**/1', '{"a\\":1}', '"', '{"\\ud8":1,"\\ud8":1}']
  for (const text of texts) for (const manner of MANNERS) t.match(failureOf(text, manner), { code: 'invalid_json' }, `${manner} ${text}`)
})
