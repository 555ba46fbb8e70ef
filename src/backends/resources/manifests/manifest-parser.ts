/** Parses the documents of a manifest file (YAML 1.2 or JSON), with limits for hostile input: size, aliases, cycles, duplicate keys. */
import { isScalar, LineCounter, parseAllDocuments, parseDocument, visit, type Document as YamlDocument } from 'yaml'
import { lineAt, type Place } from '../../../domain/settings-file.ts'
import { YAML } from '../yaml.ts'

export const MAX_FILE_BYTES = 1024 * 1024
const MAX_ALIASES = 50

/** `line` is where the document begins, counted from 1; `source` is its text, which begins on the line `sourceLine`. */
export type Document = { line: number; value: unknown; source: string; sourceLine: number }
export type Parsed = { outcome: 'parsed'; documents: Document[] } | { outcome: 'broken'; reason: string }

type Fault = { message: string; offset: number }

/** Parses a file of any number of documents; empty ones are left out. A document that cannot be parsed makes the whole file broken. */
export function parseDocuments(text: string): Parsed {
  const lineCounter = new LineCounter()
  const lineOf = (offset: number) => lineCounter.linePos(offset).line
  try {
    const documents: Document[] = []
    for (const document of parseAllDocuments(text, { ...YAML, lineCounter })) {
      const fault = faultOf(document)
      if (fault) return { outcome: 'broken', reason: `line ${lineOf(fault.offset)}: ${fault.message}` }
      const value: unknown = document.toJS({ maxAliasCount: MAX_ALIASES })
      if (value === null || value === undefined) continue
      if (isCyclic(value))
        return {
          outcome: 'broken',
          reason: `line ${lineOf(document.contents?.range?.[0] ?? 0)}: an alias refers to a value that contains it`,
        }
      const [start, , end] = document.range ?? [0, 0, text.length]
      documents.push({ line: lineOf(document.contents?.range?.[0] ?? 0), value, source: text.slice(start, end), sourceLine: lineOf(start) })
    }
    return { outcome: 'parsed', documents }
  } catch (error) {
    // Too many aliases, or nested too deeply for the parser's stack.
    return { outcome: 'broken', reason: error instanceof Error ? error.message : String(error) }
  }
}

/**
 * The line of a place in a document, or of its nearest parent. Parses the text again: lines are rarely needed, and nodes take many times
 * the memory of values.
 */
export function lineIn({ line, source, sourceLine }: Document, place: Place): number {
  if (place.length === 0) return line
  const lineCounter = new LineCounter()
  return sourceLine - 1 + lineAt(parseDocument(source, { ...YAML, lineCounter }), lineCounter, place)
}

/** Whether a value contains itself, which JSON cannot express and traversals would not survive. `ancestors` contain the value, `visited` are not cyclic. */
function isCyclic(value: unknown, ancestors = new Set<unknown>(), visited = new Set<unknown>()): boolean {
  if (typeof value !== 'object' || value === null || visited.has(value)) return false
  if (ancestors.has(value)) return true
  ancestors.add(value)
  const hasCycle = Object.values(value).some((member) => isCyclic(member, ancestors, visited))
  ancestors.delete(value)
  visited.add(value)
  return hasCycle
}

function faultOf(document: YamlDocument | YamlDocument.Parsed): Fault | null {
  const [fault] = [...document.errors, ...document.warnings]
  return fault ? { message: fault.message, offset: fault.pos[0] } : duplicateKey(document)
}

function duplicateKey(document: YamlDocument | YamlDocument.Parsed): Fault | null {
  let found: Fault | null = null
  visit(document, {
    Map(_, map) {
      const keys = new Set<unknown>()
      for (const { key } of map.items) {
        if (!isScalar(key)) continue
        if (keys.has(key.value)) {
          found = { message: `duplicate key ${String(key.value)}`, offset: key.range?.[0] ?? 0 }
          return visit.BREAK
        }
        keys.add(key.value)
      }
      return undefined
    },
  })
  return found
}
