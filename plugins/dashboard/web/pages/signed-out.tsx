/** Shown without a session: after sign-out, and when the session has ended. */
import { useEffect } from 'preact/hooks'
import { signedOut } from '../api/client.ts'
import { noteEnd } from '../api/last-tenant.ts'
import { Logo } from '../components/logo.tsx'
import { here, hrefOf } from '../router.ts'

export function SignedOut() {
  const { path, query } = here.value
  const wanted = hrefOf(`${path}${query.size > 0 ? `?${query}` : ''}`)
  const left = signedOut.value?.reason === 'left'
  useEffect(() => void (left || noteEnd()), [])
  return (
    <main class="alone">
      <div class="card sign-in">
        <Logo size={48} />
        <h1>{left ? 'You are signed out' : 'Sign in'}</h1>
        <p class="muted">
          {left ? 'Nothing of your session is left in this browser.' : 'Your session has ended, or you have not signed in yet.'}
        </p>
        <a class="button primary large" href={hrefOf(`/sign-in?return=${encodeURIComponent(wanted)}`)} data-reload>
          Sign in
        </a>
      </div>
    </main>
  )
}
