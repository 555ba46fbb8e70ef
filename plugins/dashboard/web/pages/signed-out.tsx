/** Shown without a session: after sign-out, when the session has ended, and at `/dashboard/sign-in` where people sign in by a link. */
import { signedOut } from '../api/client.ts'
import { Logo } from '../components/logo.tsx'
import { Notice } from '../components/states.tsx'
import { here, hrefOf } from '../router.ts'

export function SignedOut() {
  const isLinkPage = here.value.path === '/sign-in'
  const isUsed = here.value.query.has('error')
  const left = signedOut.value?.reason === 'left'
  return (
    <main class="alone">
      <div class="card sign-in">
        <Logo size={48} />
        <h1>{left ? 'You are signed out' : 'Sign in'}</h1>
        {isLinkPage ? (
          <>
            {isUsed && <Notice tone="warn">That link was used before, or is not of this start of the program.</Notice>}
            <p>Open the link that Tollgate printed when it started. It is for one use, and looks like this:</p>
            <pre tabIndex={0} aria-label="Example of a link">
              <code>{`${location.origin}${hrefOf('/sign-in')}?token=…`}</code>
            </pre>
            <p class="muted">Restart the program to get a new one.</p>
          </>
        ) : (
          <>
            <p class="muted">{left ? 'Nothing of your session is left in this browser.' : 'Your session has ended, or you have not signed in yet.'}</p>
            <a class="button primary large" href={hrefOf(`/sign-in?return=${encodeURIComponent(hrefOf(here.value.path))}`)} data-reload>
              Sign in
            </a>
          </>
        )}
      </div>
    </main>
  )
}
