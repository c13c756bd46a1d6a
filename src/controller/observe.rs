pub(super) async fn run(_: std::sync::Arc<super::Shared>, _: tokio_util::sync::CancellationToken) {}
