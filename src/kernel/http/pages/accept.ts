// Content negotiation for the few answers that have a page for browsers.

/** Whether `Accept` names HTML, as browsers do; a wildcard alone does not count. */
export function acceptsHtml(accept = ''): boolean {
  return accept.split(',').some((range) => {
    const [type = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase());
    const isRefused = parameters.some((parameter) => /^q=0(?:\.0*)?$/.test(parameter));
    return (type === 'text/html' || type === 'application/xhtml+xml') && !isRefused;
  });
}
