/** The documents of one manifest file, YAML 1.2 or JSON. What is written in it is not trusted to be small or sane. */
import { isScalar, LineCounter, parseAllDocuments, parseDocument, visit, type Document as YamlDocument } from 'yaml'
import { lineAt, type Place } from '../../../domain/settings-file.ts'
import { YAML } from '../yaml.ts'

export const LARGEST_FILE_BYTES = 1024 * 1024
const MOST_ALIASES = 50

/** `line` is where the document begins, counted from 1; `source` its text, which begins on the line `sourceLine`. */
export type Document = { line: number; value: unknown; source: string; sourceLine: number }
export type Parsed = { outcome: 'parsed'; documents: Document[] } | { outcome: 'broken'; reason: string }

type Fault = { message: string; offset: number }

/** Parses a file of any number of documents; empty ones are left out. One that cannot be parsed makes the whole file broken. */
export function parseDocuments(text: string): Parsed {
  const lineCounter = new LineCounter()
  const lineOf = (offset: number) => lineCounter.linePos(offset).line
  try {
    const documents: Document[] = []
    for (const document of parseAllDocuments(text, { ...YAML, lineCounter })) {
      const fault = faultOf(document)
      if (fault) return { outcome: 'broken', reason: `line ${lineOf(fault.offset)}: ${fault.message}` }
      const value: unknown = document.toJS({ maxAliasCount: MOST_ALIASES })
      if (value === null || value === undefined) continue
      if (isWithinItself(value)) return { outcome: 'broken', reason: `line ${lineOf(document.contents?.range?.[0] ?? 0)}: an alias stands within what it stands for` }
      const [start, , end] = document.range ?? [0, 0, text.length]
      documents.push({ line: lineOf(document.contents?.range?.[0] ?? 0), value, source: text.slice(start, end), sourceLine: lineOf(start) })
    }
    return { outcome: 'parsed', documents }
  } catch (error) {
    // Too many aliases, or nested too deeply for the parser's stack.
    return { outcome: 'broken', reason: error instanceof Error ? error.message : String(error) }
  }
}

/** The line of a place in a document, or of the nearest thing around it. Few are ever asked for: the text is parsed once more for it, since nodes take many times the room of values. */
export function lineIn({ line, source, sourceLine }: Document, place: Place): number {
  if (place.length === 0) return line
  const lineCounter = new LineCounter()
  return sourceLine - 1 + lineAt(parseDocument(source, { ...YAML, lineCounter }), lineCounter, place)
}

/** No JSON could say it, and who walks through it would never end. `above` are what it is within, `whole` what was looked at. */
function isWithinItself(value: unknown, above = new Set<unknown>(), whole = new Set<unknown>()): boolean {
  if (typeof value !== 'object' || value === null || whole.has(value)) return false
  if (above.has(value)) return true
  above.add(value)
  const isCyclic = Object.values(value).some((one) => isWithinItself(one, above, whole))
  above.delete(value)
  whole.add(value)
  return isCyclic
}

function faultOf(document: YamlDocument | YamlDocument.Parsed): Fault | null {
  const [fault] = [...document.errors, ...document.warnings]
  return fault ? { message: fault.message, offset: fault.pos[0] } : repeatedKey(document)
}

function repeatedKey(document: YamlDocument | YamlDocument.Parsed): Fault | null {
  let found: Fault | null = null
  visit(document, {
    Map(_, map) {
      const keys = new Set<unknown>()
      for (const { key } of map.items) {
        if (!isScalar(key)) continue
        if (keys.has(key.value)) {
          found = { message: `the key ${String(key.value)} is there twice`, offset: key.range?.[0] ?? 0 }
          return visit.BREAK
        }
        keys.add(key.value)
      }
      return undefined
    },
  })
  return found
}
