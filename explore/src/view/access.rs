//! Access control: the token, the host and the origin of requests, and the headers of all responses.
//!
//! Any page that the user visits can send requests to this machine. Three checks reject them. The token proves
//! that the sender knows the printed address. The host must be a name of this machine. Otherwise, a foreign
//! page whose name resolves to this machine would count as a page of this server (DNS rebinding). The origin,
//! if the browser states it, must be this server.

use super::request::Failure;
use a2store::error::{Error, Result};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use std::sync::Arc;

/// The minimum length of a token, in characters.
const MIN_TOKEN: usize = 16;

/// The default Content-Security-Policy. Responses that set their own policy keep it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
    connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

/// The token of a server, as a hash, and the name of the cookie that holds it.
pub(crate) struct Access {
    token: blake3::Hash,
    cookie: String,
}

/// Checks that a token is long enough and needs no quoting.
pub(crate) fn check_token(token: &str) -> Result<()> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if token.len() >= MIN_TOKEN && token.bytes().all(is_valid) {
        return Ok(());
    }
    let expected = format!("at least {MIN_TOKEN} letters, digits, `-` and `_`");
    let found = if token.len() < MIN_TOKEN {
        format!("{} characters", token.chars().count())
    } else {
        "other characters".into()
    };
    Err(Error::argument("A2STORE_VIEW_TOKEN", expected, found))
}

/// The kinds of accepted requests.
enum Entry {
    /// A request from the page.
    Page,
    /// The first request, with the token in its address. `is_foreign` = the request comes from another site, by
    /// a link.
    First { is_foreign: bool },
}

impl Access {
    /// Returns the access control of a server. Browsers share cookies between ports, so the name of the cookie contains
    /// the port. Therefore, several views can run at the same time.
    pub(crate) fn new(token: &str, port: u16) -> Access {
        Access { token: blake3::hash(token.as_bytes()), cookie: format!("a2store-{port}") }
    }

    fn check(&self, request: &Request) -> Result<Entry, Failure> {
        let headers = request.headers();
        let host = host(request)?;
        if let Some(origin) = headers.get(header::ORIGIN)
            && origin.to_str().ok() != Some(&format!("http://{host}"))
        {
            return Err(Failure::forbidden("the request comes from another site"));
        }
        let site = headers.get("sec-fetch-site").map_or("none", |site| site.to_str().unwrap_or("unknown"));
        let is_own = matches!(site, "none" | "same-origin");
        let is_start = request.method() == Method::GET && request.uri().path() == "/";
        let is_navigation = headers.get("sec-fetch-mode").is_none_or(|mode| mode == "navigate");
        if is_start && is_navigation && given_token(request).is_some_and(|given| self.is_token(given)) {
            return Ok(Entry::First { is_foreign: !is_own });
        }
        if !is_own && !is_start {
            return Err(Failure::forbidden("the request comes from another site"));
        }
        if self.has_cookie(headers) { Ok(Entry::Page) } else { Err(Failure::unauthorized()) }
    }

    /// Returns whether a token is right. The comparison of hashes takes constant time.
    fn is_token(&self, given: &str) -> bool {
        blake3::hash(given.as_bytes()) == self.token
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        // Other programs on this machine may set cookies that contain any bytes.
        let mut cookies =
            headers.get_all(header::COOKIE).iter().flat_map(|all| all.as_bytes().split(|&byte| byte == b';'));
        cookies.any(|cookie| {
            let pair = std::str::from_utf8(cookie).ok().and_then(|pair| pair.trim().split_once('='));
            pair.is_some_and(|(name, value)| name == self.cookie && self.is_token(value))
        })
    }

    /// Stores the token in the browser, and redirects to the address without the token.
    fn enter(&self, request: &Request, is_foreign: bool) -> Response {
        let token = given_token(request).unwrap_or_default();
        let cookie = format!("{}={token}; Path=/; HttpOnly; SameSite=Strict", self.cookie);
        // Browsers do not send a strict cookie after a redirect that began at another site.
        let mut response = if is_foreign {
            Html("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=/\"><title>a2store</title>")
                .into_response()
        } else {
            (StatusCode::SEE_OTHER, [(header::LOCATION, "/")]).into_response()
        };
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        response
    }
}

/// Returns the token in the address of a request.
fn given_token(request: &Request) -> Option<&str> {
    request.uri().query()?.split('&').find_map(|pair| pair.strip_prefix("token="))
}

/// Returns the host of a request, with its port. Any port is accepted, because a tunnel may use another port.
fn host(request: &Request) -> Result<&str, Failure> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) else {
        return Err(Failure::forbidden("the request does not have exactly one host"));
    };
    let is_own = |name: &str| name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost");
    let is_valid = match host.split_once(':') {
        Some((name, port)) => {
            is_own(name) && port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok()
        }
        None => is_own(host),
    };
    if !is_valid || request.uri().host().is_some_and(|name| !is_own(name)) {
        return Err(Failure::forbidden("the request is for another host"));
    }
    Ok(host)
}

/// Passes on requests from the page, and rejects all others.
pub(crate) async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let is_start = request.uri().path() == "/";
    let mut response = match access.check(&request) {
        Ok(Entry::Page) => next.run(request).await,
        Ok(Entry::First { is_foreign }) => access.enter(&request, is_foreign),
        Err(failure) if is_start && failure.status == StatusCode::UNAUTHORIZED => refused(locked()),
        Err(failure) => refused(failure.into_response()),
    };
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::CACHE_CONTROL, "no-store");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    response
}

/// Closes the connection after the response, so that a sender without the token cannot keep it open.
fn refused(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The response to a browser that does not have the token.
fn locked() -> Response {
    let text = "<!doctype html><html lang=\"en\"><meta name=\"viewport\" content=\"width=device-width\">\
        <title>a2store</title><main><h1>This address needs a token</h1><p>Open the complete address that <code>a2store view</code> \
        printed. After a restart, the server has a new token.</p></main></html>";
    (StatusCode::UNAUTHORIZED, Html(Body::from(text))).into_response()
}
