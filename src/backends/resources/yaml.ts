/**
 * YAML options that read manifests like kubectl and the API server (go.yaml.in/yaml/v2): YAML 1.2 with the booleans and integers of 1.1, without its timestamps
 * and base-60 numbers. Ambiguous input is refused: duplicate keys and merge keys (`<<`).
 */
import type { DocumentOptions, ParseOptions, ScalarTag, SchemaOptions } from 'yaml'

const BOOLEAN = { identify: () => false, default: true, tag: 'tag:yaml.org,2002:bool' } as const
const NUMBER = { identify: () => false, default: true, tag: 'tag:yaml.org,2002:int' } as const

const SCALARS: ScalarTag[] = [
  { ...BOOLEAN, test: /^([yY]|yes|Yes|YES|on|On|ON)$/, resolve: () => true },
  { ...BOOLEAN, test: /^([nN]|no|No|NO|off|Off|OFF)$/, resolve: () => false },
  { ...NUMBER, test: /^[-+]?0[0-7_]*[0-7]_*$/, resolve: (text) => numberOf(text, (digits) => Number.parseInt(digits, 8)) },
  {
    ...NUMBER,
    test: /^[-+]?0_*([xX]_*[\da-fA-F][\da-fA-F_]*|[oO]_*[0-7][0-7_]*|[bB]_*[01][01_]*)$/,
    resolve: (text) => numberOf(text, Number),
  },
  { ...NUMBER, test: /^[-+]?\d[\d_]*(\.[\d_]*)?([eE][-+]?[\d_]*\d_*)?$/, resolve: (text) => numberOf(text, Number) },
]

/** For all code that parses or writes manifests. The library's own check for duplicate keys and its pretty errors take quadratic time on hostile files. */
export const YAML: ParseOptions & DocumentOptions & SchemaOptions = {
  schema: 'core',
  customTags: (tags) => [...SCALARS, ...tags],
  logLevel: 'silent',
  uniqueKeys: false,
  prettyErrors: false,
}

/** Ignores underscores. `parse` gets the digits without a sign. */
function numberOf(text: string, parse: (digits: string) => number): number {
  const digits = text.replaceAll('_', '').replace(/^[-+]/, '')
  return text.startsWith('-') ? -parse(digits) : parse(digits)
}
