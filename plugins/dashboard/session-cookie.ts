/** The session cookie. Off loopback it has the prefix `__Host-`, with which no other host can set or read it (RFC 6265bis, section 4.1.3). */
import type { FastifyReply, FastifyRequest } from 'fastify'

/** Value of a cookie of the request, or null. */
export function readCookie({ headers }: FastifyRequest, name: string): string | null {
  for (const part of (headers.cookie ?? '').split(';')) {
    const at = part.indexOf('=')
    if (at > 0 && part.slice(0, at).trim() === name) return part.slice(at + 1).trim()
  }
  return null
}

export type Cookie = { name: string; path: string; isSecure: boolean }

/** A cookie under its name for this address. `path` counts on loopback; elsewhere the prefix demands `/`. */
export function cookieFor(publicUrl: string, name: string, path: string): Cookie {
  const isSecure = publicUrl.startsWith('https:')
  return isSecure ? { name: `__Host-${name}`, path: '/', isSecure } : { name, path, isSecure }
}

/** Adds a Set-Cookie header; `maxAgeMs` 0 removes the cookie. */
export function setCookie(reply: FastifyReply, { name, path, isSecure }: Cookie, value: string, maxAgeMs: number): void {
  const cookie = `${name}=${value}; Path=${path}; Max-Age=${Math.floor(maxAgeMs / 1000)}; HttpOnly; SameSite=Lax${isSecure ? '; Secure' : ''}`
  const others = reply.getHeader('set-cookie')
  reply.header('set-cookie', others === undefined ? cookie : [others, cookie].flat().map(String))
}
