import t from 'tap'
import { GENERATION_FIELDS } from '../../src/domain/media-generations.ts'
import { TASK_FIELDS } from '../../src/tasks/request-fields.ts'
import { faultsOf, invalid, strictValidator } from '../../src/domain/request-validation.ts'

const schema = {
  type: 'object',
  required: ['kind'],
  additionalProperties: false,
  properties: { kind: { enum: ['image', 'video'] }, flag: { type: ['boolean', 'null'] }, one: { const: '2.0' }, at: { type: 'string', format: 'date-time' }, count: { type: 'integer', minimum: 1, maximum: 100 }, other: { type: 'string', pattern: '^x$' }, ...GENERATION_FIELDS, ...TASK_FIELDS },
}

function faults(body: object): Record<string, string> {
  const valid = strictValidator({ schema, httpPart: 'body' })
  t.notOk(valid({ kind: 'image', prompt: 'x', ...body }))
  return Object.fromEntries(faultsOf(valid.errors ?? []).map(({ path, message }) => [path, message]))
}

t.test('every fault is reported as a sentence with its path', async (t) => {
  const rows: [object, string, string][] = [
    [{ kind: 'sculpture' }, '/kind', 'must be one of image, video'],
    [{ kind: undefined }, '/kind', 'is required'],
    [{ colour: 'red' }, '/colour', 'is not a field of this request'],
    [{ 'a/b~': 1 }, '/a~1b~0', 'is not a field of this request'],
    [{ prompt: '' }, '/prompt', 'must not be empty'],
    [{ prompt: 'x'.repeat(8001) }, '/prompt', 'must have at most 8000 characters'],
    [{ prompt: 7 }, '/prompt', 'must be a string'],
    [{ flag: 'yes' }, '/flag', 'must be true or false or null'],
    [{ one: '1.0' }, '/one', 'must be "2.0"'],
    [{ at: 'noon' }, '/at', 'must be a date and time with its zone, such as 2026-11-21T08:30:00Z'],
    [{ at: '2026-02-30T08:30:00Z' }, '/at', 'must be a date and time with its zone, such as 2026-11-21T08:30:00Z'],
    [{ count: 0 }, '/count', 'must be at least 1'],
    [{ count: 101 }, '/count', 'must be at most 100'],
    [{ seed: 1.5 }, '/seed', 'must be a whole number'],
    [{ size: 'large' }, '/size', 'must be a width and a height in pixels, such as 1024x1024'],
    [{ aspect_ratio: '16/9' }, '/aspect_ratio', 'must be two numbers from 1 to 99 with a colon between, such as 16:9'],
    [{ output_format: 'P N G' }, '/output_format', 'must be the short name of a format, such as png'],
    [{ metadata: { ['n'.repeat(65)]: 'x' } }, `/metadata/${'n'.repeat(65)}`, 'must have a name of 1 to 64 characters on one line'],
    [{ metadata: { 'two\nlines': 'x' } }, '/metadata/two\nlines', 'must have a name of 1 to 64 characters on one line'],
    [{ metadata: { a: 1 } }, '/metadata/a', 'must be a string'],
    [{ metadata: { a: 'x'.repeat(513) } }, '/metadata/a', 'must have at most 512 characters'],
    [{ metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [i, 'x'])) }, '/metadata', 'must have at most 16 members'],
    [{ metadata: 'x' }, '/metadata', 'must be an object'],
    // A pattern of somebody else's schema.
    [{ other: 'y' }, '/other', 'must match pattern "^x$"'],
  ]
  for (const [body, path, message] of rows) t.same(faults(body), { [path]: message })
})

t.test('the first fault is reported in words, and up to twenty by their paths', async (t) => {
  const valid = strictValidator({ schema, httpPart: 'body' })
  valid(Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`x${i}`, 1])))
  const failure = invalid(faultsOf(valid.errors ?? []))
  t.match(failure, { status: 400, message: '/kind is required.', facts: { param: 'kind' } })
  t.equal(failure.facts.errors?.length, 20)
  t.match(invalid([{ path: '/media_urls/1/a~1b', code: 'type', message: 'must be a string' }]), { facts: { param: 'media_urls[1].a/b' } })
  valid([])
  t.match(invalid(faultsOf(valid.errors ?? [])), { message: 'The body must be an object.', facts: { param: null } })
})
