/** Limits of strict JSON, and the failures of both of its parsers (`strict-json`, `incremental-json`). */
import { Failure, paramOf } from '../domain/errors.ts'

/** Deeper than any tool schema, and far below the depth at which serializing exhausts the stack. */
export const MAX_DEPTH = 200
/** Objects, lists, strings, numbers and literals: far more than any conversation has. What follows the parsing walks over all of them. */
export const MAX_VALUES = 100_000
/** Characters of a number. */
export const MAX_NUMBER_LENGTH = 1_000
/** Decimal digits that a double always keeps. */
export const EXACT_DIGITS = 15

/**
 * `faithful`: for bodies that are forwarded. Numbers that a double cannot hold keep their digits (as `JSON.rawJSON`), and `__proto__` is an ordinary member.
 * `strict`: for bodies that are read here. Both are refused.
 */
export type Manner = 'faithful' | 'strict'

/** Names that enable prototype pollution in code that merges objects carelessly. `parent` is the name of the member that holds the object. */
export function isTrap(name: string, parent: string | undefined): boolean {
  return name === '__proto__' || (name === 'prototype' && parent === 'constructor')
}

/** Whether a double holds the number (RFC 7493, section 2.2): within its range, and an integer exactly. */
export function isHeld(digits: string): boolean {
  const value = Number(digits)
  return Number.isFinite(value) && (!/^-?\d+$/.test(digits) || Number.isSafeInteger(value))
}

/** `invalid_json`; `what` completes a sentence about the request body. */
export function tooMuch(what: string): Failure {
  return new Failure('invalid_json', { message: `The request body ${what}.` })
}

/** The failure of a body with more than `MAX_VALUES` values. */
export function tooManyValues(): Failure {
  return tooMuch(`has more than ${MAX_VALUES} values`)
}

/** The failure of a body that is nested deeper than `MAX_DEPTH` levels. */
export function tooDeep(): Failure {
  return tooMuch(`is nested deeper than ${MAX_DEPTH} levels`)
}

/** The failure of the member or element at a path of names and indices. */
export function faulty(path: (string | number)[], code: 'duplicate' | 'not_allowed' | 'surrogate' | 'maximum' | 'length'): Failure {
  const pointer = path
    .map((part) => `/${String(part).replaceAll('~', '~0').replaceAll('/', '~1')}`)
    .join('')
    .toWellFormed()
  const message = SENTENCES[code]
  return new Failure('invalid_json', {
    message: `${pointer || 'The body'} ${message}.`,
    param: paramOf(path),
    errors: [{ path: pointer, code, message }],
  })
}

const SENTENCES = {
  duplicate: 'occurs more than once',
  not_allowed: 'is not allowed',
  surrogate: 'holds half of a surrogate pair',
  maximum: 'is a number larger than can be read exactly',
  length: `is a number of more than ${MAX_NUMBER_LENGTH} characters`,
}
