/** Plain pages around sign-in: what went wrong, and what to do. They work without script. */
import type { FastifyInstance, FastifyReply } from 'fastify'

export type Page = { title: string; sentence: string; link?: { href: string; text: string } }

const ESCAPES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }
const escaped = (text: string) => text.replaceAll(/[&<>"']/g, (one) => ESCAPES[one] ?? '')

/** The colours are those of web/styles/tokens.css. */
const STYLE = `:root { color-scheme: light dark; font: 100%/1.55 Inter, ui-sans-serif, system-ui, sans-serif; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: light-dark(#f6f6f2, #0e1211); color: light-dark(#1a1c1a, #e9eeeb); }
main { max-width: 28rem; margin: 1rem; padding: 2rem; border: 1px solid light-dark(#e1e0d8, #2a3330); border-radius: 14px; background: light-dark(#fff, #161b1a); }
h1 { margin: 0 0 0.5rem; font-size: 1.5rem; line-height: 1.2; letter-spacing: -0.02em; }
p:last-child { margin-bottom: 0; }
svg { display: block; width: 3rem; margin-bottom: 1rem; }
a { color: light-dark(#0b6455, #57d3b8); }
`

/** The mark of web/components/logo.tsx. */
const LOGO =
  '<svg viewBox="0 0 32 32" aria-hidden="true"><rect fill="#0b6455" width="32" height="32" rx="8"/><rect fill="#fff" x="6" y="8" width="4" height="17" rx="2"/><path fill="#ffd27a" d="M9 14 26 9v4.4L9 18.4z"/>' +
  '<path fill="#0b3d35" d="m14 12.5 3.4-1v4.4l-3.4 1zM20.4 10.6l3-.9v4.4l-3 .9z"/></svg>'

/** Answers with a page that no cache keeps. */
export function sendPage(reply: FastifyReply, status: number, { title, sentence, link }: Page): FastifyReply {
  const action = link ? `<p><a href="${escaped(link.href)}">${escaped(link.text)}</a></p>` : ''
  return reply
    .code(status)
    .headers({ 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store' })
    .send(
      `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${escaped(`${title} · ${reply.server.config.BRAND}`)}</title><link rel="stylesheet" href="/dashboard/sign-in.css"></head>` +
        `<body><main>${LOGO}<h1>${escaped(title)}</h1><p>${escaped(sentence).replace(/`(.+?)`/g, '<code>$1</code>')}</p>${action}</main></body></html>`,
    )
}

export const SIGN_IN_AGAIN = { href: '/dashboard/sign-in', text: 'Sign in again' }

/** The icon of every page of this service that names none; browsers ask for it at the root. */
export function iconRoute(app: FastifyInstance): void {
  const icon = LOGO.replace('<svg', '<svg xmlns="http://www.w3.org/2000/svg"')
  app.get('/favicon.ico', { exposeHeadRoute: false }, async (_request, reply) =>
    reply.headers({ 'content-type': 'image/svg+xml', 'cache-control': 'public, max-age=86400' }).send(icon),
  )
}

/** Serves the stylesheet: the content security policy allows none inside a page. */
export function styleRoute(app: FastifyInstance): void {
  app.get('/sign-in.css', async (_request, reply) =>
    reply.headers({ 'content-type': 'text/css; charset=utf-8', 'cache-control': 'public, max-age=3600' }).send(STYLE),
  )
}
