/** The mark: a barrier over its post. */
export function Logo({ size = 30 }: { size?: number }) {
  return (
    <svg class="logo" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect class="logo-ground" width="32" height="32" rx="8" />
      <rect class="logo-post" x="6" y="8" width="4" height="17" rx="2" />
      <path class="logo-barrier" d="M9 14 26 9v4.4L9 18.4z" />
      <path class="logo-stripe" d="m14 12.5 3.4-1v4.4l-3.4 1zM20.4 10.6l3-.9v4.4l-3 .9z" />
    </svg>
  )
}
