/**
 * Inputs and outputs of models at Replicate, as the pages "API" of the models showed them in autumn 2026 (replicate.com/<model>/api, and its versions). Prices and
 * further inputs are left out.
 */
export type ModelShape = {
  inputs: Record<string, { type: 'string' | 'integer' | 'number'; enum?: readonly unknown[]; min?: number; max?: number; needed?: true }>
  /** One address, or a list of them. */
  output: 'uri' | 'uris'
}

const text = { type: 'string' } as const
const needed = { type: 'string', needed: true } as const
const seed = { type: 'integer' } as const

export const REPLICATE_MODELS: Record<string, ModelShape> = {
  'black-forest-labs/flux-schnell': {
    inputs: {
      prompt: needed, seed, num_outputs: { type: 'integer', min: 1, max: 4 }, output_format: { type: 'string', enum: ['webp', 'jpg', 'png'] },
      aspect_ratio: { type: 'string', enum: ['1:1', '16:9', '21:9', '3:2', '2:3', '4:5', '5:4', '3:4', '4:3', '9:16', '9:21'] },
    },
    output: 'uris',
  },
  'kwaivgi/kling-v2.6': {
    inputs: { prompt: needed, negative_prompt: text, start_image: text, aspect_ratio: { type: 'string', enum: ['16:9', '9:16', '1:1'] }, duration: { type: 'integer', enum: [5, 10] } },
    output: 'uri',
  },
  'stability-ai/stable-audio-2.5': { inputs: { prompt: needed, seed, duration: { type: 'integer', min: 1, max: 190 } }, output: 'uri' },
  'black-forest-labs/flux-kontext-pro': { inputs: { prompt: needed, input_image: text, aspect_ratio: text, seed, output_format: { type: 'string', enum: ['jpg', 'png'] } }, output: 'uri' },
  'black-forest-labs/flux-fill-pro': { inputs: { prompt: needed, image: needed, mask: text, seed, output_format: { type: 'string', enum: ['jpg', 'png'] } }, output: 'uri' },
  'nightmareai/real-esrgan': { inputs: { image: needed, scale: { type: 'number', min: 0, max: 10 } }, output: 'uri' },
  'lucataco/remove-bg': { inputs: { image: needed }, output: 'uri' },
}

/** What is wrong with an input for a model: each as a sentence. */
export function inputFaults({ inputs }: ModelShape, given: Record<string, unknown>): string[] {
  const missing = Object.entries(inputs).flatMap(([name, { needed: isNeeded }]) => (isNeeded && !(name in given) ? [`${name} is missing`] : []))
  const wrong = Object.entries(given).flatMap(([name, value]) => {
    const shape = inputs[name]
    if (!shape) return [`${name} is unknown`]
    const isType = shape.type === 'integer' ? Number.isInteger(value) : typeof value === shape.type
    const isWithin = typeof value !== 'number' || (value >= (shape.min ?? -Infinity) && value <= (shape.max ?? Infinity))
    return isType && isWithin && (shape.enum?.includes(value) ?? true) ? [] : [`${name} is ${JSON.stringify(value)}`]
  })
  return [...missing, ...wrong]
}
