/** The models of an entry of the ENGINES file: the file of each operation, and what its graph wants of a picture. */
import { statSync } from 'node:fs'
import { isAbsolute, join } from 'node:path'
import { Type, type Static, type TObject } from 'typebox'
import { readSettingsFile } from '../../src/domain/settings-file.ts'

const closed = { additionalProperties: false }
const triple = (fallback: readonly number[], description: string) =>
  Type.Array(Type.Number(), { minItems: 3, maxItems: 3, default: [...fallback], description })
const pixels = (description: string) => Type.Integer({ minimum: 1, maximum: 4096, description })
const value = (description: string) => Type.Number({ exclusiveMinimum: 0, maximum: 65_535, default: 1, description })

const model = Type.String({ minLength: 1, maxLength: 4096, description: 'The ONNX file, by its absolute path.' })
const size = Type.Optional(pixels('The side of the square input; needed if the graph does not fix it.'))
const channels = Type.Enum(['rgb', 'bgr'], { default: 'rgb', description: 'The order of colours.' })
const white = value('Value of white in the input, before `mean` and `deviation`: 1 or 255.')
const mean = (fallback: readonly number[]) => triple(fallback, 'Subtracted from red, green and blue.')
const deviation = (fallback: readonly number[]) => triple(fallback, 'After `mean` is subtracted, red, green and blue are divided by these.')
const IMAGENET = { mean: [0.485, 0.456, 0.406], deviation: [0.229, 0.224, 0.225] }

const BackgroundRemove = Type.Object(
  {
    model,
    size,
    channels,
    white,
    mean: mean(IMAGENET.mean),
    deviation: deviation(IMAGENET.deviation),
    output: Type.Enum(['probabilities', 'logits'], {
      default: 'probabilities',
      description:
        'What the first output has for each pixel: the share of it that belongs to the subject, from 0 to 1, or the logit of that share.',
    }),
  },
  closed,
)
const Upscale = Type.Object(
  {
    model,
    scale: Type.Integer({
      minimum: 2,
      maximum: 8,
      description: 'How many times larger the graph makes a picture. A filter makes it smaller for the other scales of the operation.',
    }),
    channels,
    white,
    mean: mean([0, 0, 0]),
    deviation: deviation([1, 1, 1]),
    outputWhite: value('Value of white in the output: 1 or 255.'),
    tile: Type.Integer({
      minimum: 16,
      maximum: 4096,
      default: 256,
      description:
        'The longest side of the tiles into which a picture is split. Memory and the quality at seams depend on it. A graph of a fixed size has its own.',
    }),
    overlap: Type.Integer({
      minimum: 0,
      maximum: 256,
      default: 16,
      description: 'Pixels of overlap around each tile, to avoid seams.',
    }),
  },
  closed,
)
const Inpaint = Type.Object(
  {
    model,
    size,
    channels,
    white,
    mean: mean([0, 0, 0]),
    deviation: deviation([1, 1, 1]),
    outputWhite: value('Value of white in the output: 1 or 255.'),
    mask: Type.Enum(['white', 'black'], {
      default: 'white',
      description:
        'Value of the mask where the picture is to be filled: 1 (`white`) or 0. The mask is an input of one channel, or the fourth channel of the only input; the picture is black there.',
    }),
  },
  closed,
)

/** The options of an entry that name models. `docs/models.md` is generated from the descriptions. */
export const MODEL_SCHEMAS = { background_remove: BackgroundRemove, upscale: Upscale, inpaint: Inpaint }

export type BackgroundRemoveModel = Static<typeof BackgroundRemove>
export type UpscaleModel = Static<typeof Upscale>
export type InpaintModel = Static<typeof Inpaint>
/** Without an operator's model, inpainting continues the surroundings by a classical method. */
export type Models = { background_remove: BackgroundRemoveModel; upscale: UpscaleModel; inpaint: InpaintModel | null }
export type Modelled = keyof Models

const shipped = (file: string) => join(import.meta.dirname, 'models', file)
/** Only the network's 10 pixels and those of the back-projections count: beyond 8 the difference is 1 of 255. */
const ESRGAN_SLIM = { model: shipped('esrgan-slim.onnx'), scale: 4, white: 255, outputWhite: 255, tile: 368, overlap: 8 }
const SHIPPED = { background_remove: { model: shipped('u2netp.onnx') }, upscale: ESRGAN_SLIM }

/** The models that an entry names, and those that are shipped for the operations that it names none for. Throws an Error of one sentence about the first fault. */
export function readModels(options: Record<string, unknown>): { models: Models; named: Modelled[] } {
  const named = (Object.keys(MODEL_SCHEMAS) as Modelled[]).filter((operation) => options[operation] !== undefined)
  for (const operation of named) {
    const { model } = read(operation, MODEL_SCHEMAS[operation], options[operation])
    if (!isAbsolute(model)) throw new Error(`${operation}.model must be an absolute path`)
  }
  return {
    named,
    models: {
      background_remove: read('background_remove', BackgroundRemove, options['background_remove'] ?? SHIPPED.background_remove),
      upscale: read('upscale', Upscale, options['upscale'] ?? SHIPPED.upscale),
      inpaint: options['inpaint'] === undefined ? null : read('inpaint', Inpaint, options['inpaint']),
    },
  }
}

function read<S extends TObject>(operation: string, schema: S, given: unknown): Static<S> {
  const found = readSettingsFile(schema, JSON.stringify(given))
  if (found.outcome === 'refused') throw new Error(`${operation}.${found.what}`)
  return found.value
}

/** The bytes of a model's file. Throws an Error of one sentence where it cannot be read. */
export function modelBytes(operation: string, model: string): number {
  try {
    return statSync(model).size
  } catch (error) {
    throw new Error(`${operation}.model: ${model} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`, { cause: error })
  }
}
