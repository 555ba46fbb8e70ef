/** Test fixture: a browser of the dashboard over `inject`, which keeps cookies as a browser does, and sends what a page of the dashboard sends. */
import type { FastifyInstance, InjectOptions, LightMyRequestResponse } from 'fastify'

export type Browser = {
  /** The cookies that the browser has, by name. */
  cookies: Map<string, string>
  get(path: string, headers?: Record<string, string>): Promise<LightMyRequestResponse>
  /** A request of a page, with the CSRF header. */
  send(method: 'POST' | 'PUT' | 'PATCH' | 'DELETE', path: string, body?: object, headers?: Record<string, string>): Promise<LightMyRequestResponse>
  request(options: InjectOptions): Promise<LightMyRequestResponse>
}

export function openBrowser(app: FastifyInstance): Browser {
  const cookies = new Map<string, string>()

  async function request(options: InjectOptions): Promise<LightMyRequestResponse> {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    const headers = { host: '127.0.0.1:8080', ...(cookie === '' ? {} : { cookie }), ...options.headers }
    const response = await app.inject({ ...options, headers })
    for (const { name, value, maxAge } of response.cookies) {
      if (maxAge === 0) cookies.delete(name)
      else cookies.set(name, value)
    }
    return response
  }

  return {
    cookies,
    request,
    get: (path, headers = {}) => request({ url: path, headers }),
    send: (method, path, body, headers = {}) => request({ method, url: path, headers: { 'x-tollgate-csrf': '1', ...headers }, ...(body ? { payload: body } : {}) }),
  }
}

/** Signs a browser in by the one-time link. */
export async function signIn(app: FastifyInstance, browser = openBrowser(app)): Promise<Browser> {
  const { pathname, search } = new URL(app.signInLink() ?? '')
  const response = await browser.get(`${pathname}${search}`)
  if (response.statusCode !== 303) throw new Error(`sign-in answered ${response.statusCode}`)
  return browser
}
