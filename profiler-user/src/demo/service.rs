//! The shop's door: HTTP/1.1, one request a connection, as little of it as customers need.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::handlers;

/// Longest request head that is read; the shop's own customers send less than 100 bytes.
const MAX_HEAD: usize = 4096;

/// Listens on the loopback, says on which port, and serves until the process ends.
pub(super) async fn listen(port: u16) -> anyhow::Result<()> {
    let (listener, address) = bind(port).await?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", address.port())?;
    stdout.flush()?;
    accept(listener).await
}

/// A listener on the loopback, and where it is.
pub(super) async fn bind(port: u16) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves every customer in a task of its own.
pub(super) async fn accept(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            // A customer who leaves early is none of our business.
            let _ = serve_customer(stream).await;
        });
    }
}

async fn serve_customer(mut stream: TcpStream) -> std::io::Result<()> {
    let head = read_head(&mut stream).await?;
    let (status, body) = match route(&head).await {
        Some(body) => ("200 OK", body),
        None => ("404 Not Found", "no such department\n"),
    };
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads up to the empty line that ends a request's head.
async fn read_head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::with_capacity(512);
    while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

async fn route(head: &str) -> Option<&'static str> {
    let path = head.split(' ').nth(1)?;
    Some(match path {
        "/health" => handlers::health_handler().await,
        "/checkout" => handlers::checkout_handler().await,
        "/settings" => handlers::settings_handler().await,
        "/report" => handlers::report_handler().await,
        "/stock" => handlers::stock_handler().await,
        "/newsletter" => handlers::newsletter_handler().await,
        _ => return None,
    })
}
