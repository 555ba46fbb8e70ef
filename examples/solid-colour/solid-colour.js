/**
 * A third-party plugin: an engine that makes images of one colour, and paints pictures over with it. The prompt names the colour, as a word or as `#rrggbb`.
 * `engines.yaml` beside it makes it the engine of images and of `ai_edit`; `README.md` says how to start it.
 */
import { crc32, deflateSync } from 'node:zlib'
import fp from 'fastify-plugin'

/** Options in PLUGINS are text; they are validated by this schema, which also has the defaults. */
export const optionsSchema = {
  type: 'object',
  additionalProperties: false,
  properties: { fallback: { type: 'string', pattern: '^[0-9a-f]{6}$', default: '808080', description: 'The colour of prompts that name none.' } },
}

const COLOURS = { black: '000000', white: 'ffffff', red: 'ff0000', green: '008000', blue: '0000ff', yellow: 'ffff00', orange: 'ffa500', purple: '800080' }

async function solidColour(app, { fallback }) {
  app.engines.add('solid-colour', async (_name, options) => {
    const [unknown] = Object.keys(options)
    if (unknown !== undefined) throw new Error(`type solid-colour has no option ${unknown}`)
    return {
      offers: { image: { formats: ['png'] }, ai_edit: { formats: ['png'] } },
      async run(request, { inputs, limits, signal, progress }) {
        signal.throwIfAborted()
        // A generation has its size, an operation has inputs: the media, and for some operations a mask.
        const size = request.kind === 'image' ? request : await sizeOf(inputs[0])
        if (!size) return { outcome: 'failed', code: 'unsupported_input', retryable: false }
        const { width, height } = size
        if (width * height > limits.pixels) return { outcome: 'failed', code: 'input_too_large', retryable: false }
        progress(50)
        return { outcome: 'made', body: png(width, height, colourOf(request.prompt, fallback)), contentType: 'image/png', facts: { width, height } }
      },
    }
  })
}

/** The size of a PNG, which its first 24 bytes have; null for any other picture. */
async function sizeOf({ contentType, read }) {
  if (contentType !== 'image/png') return null
  for await (const bytes of read()) return bytes.length < 24 ? null : { width: Buffer.from(bytes).readUInt32BE(16), height: Buffer.from(bytes).readUInt32BE(20) }
  return null
}

/** Six hexadecimal digits: the first colour that the prompt names. */
function colourOf(prompt, fallback) {
  const [found] = prompt.toLowerCase().match(/#[0-9a-f]{6}\b|\b[a-z]+\b/g)?.filter((word) => word.startsWith('#') || Object.hasOwn(COLOURS, word)) ?? []
  if (found === undefined) return fallback
  return found.startsWith('#') ? found.slice(1) : COLOURS[found]
}

/** A PNG (ISO/IEC 15948) with a palette of one colour and one bit for each pixel, so that even a large one is small. */
function png(width, height, colour) {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header.set([1, 3], 8)
  // Each row is a filter byte and the bits of its pixels, all of them 0.
  const rows = Buffer.alloc(height * (1 + Math.ceil(width / 8)))
  const signature = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10])
  return Buffer.concat([signature, chunk('IHDR', header), chunk('PLTE', Buffer.from(colour, 'hex')), chunk('IDAT', deflateSync(rows)), chunk('IEND', Buffer.alloc(0))])
}

function chunk(type, data) {
  const typed = Buffer.concat([Buffer.from(type), data])
  const frame = Buffer.alloc(8)
  frame.writeUInt32BE(data.length, 0)
  frame.writeUInt32BE(crc32(typed), 4)
  return Buffer.concat([frame.subarray(0, 4), typed, frame.subarray(4)])
}

export default fp(solidColour, { name: 'solid-colour', fastify: '5.x', decorators: { fastify: ['engines'] } })
